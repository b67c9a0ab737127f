"""``python -m service.cli``, for processes that know their interpreter and not where ctxb is."""

from service.cli import main

main()
