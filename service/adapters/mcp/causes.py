"""Why a server could not be listed, in words that give nothing of its secrets away."""

from typing import Final

from formatters.guard import one_line
from formatters.rows import well_formed
from service.config.masking import mask_urls

#: Of a stranger's message.
MOST_CHARS: Final = 200


def cause_of(error: BaseException) -> str:
    """Return the first cause in an error or a group of them, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    said = one_line(well_formed(str(error)))
    said = f"{said[:MOST_CHARS]}…" if len(said) > MOST_CHARS else said
    name = type(error).__name__
    return mask_urls(f"{name}: {said}" if said else name)
