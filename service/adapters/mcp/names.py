"""The names under which a server's tools are offered: its own name, two ``_``, the tool's."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

#: No server's name has two of these in a row, so the first two end it.
SEPARATOR: Final = "__"
#: What OpenAI, Anthropic and Gemini all take; all of them want a letter first, or ``_``.
MOST_CHARS: Final = 64
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]")
#: Of the hash that tells changed names apart.
_DIGITS: Final = 8


def offered_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """Return the name that each tool is offered under, by the server's own.

    Characters that a provider doesn't take become ``_``. Where the name is too long then, or also
    another tool's, eight hex digits of a hash end it: the same in whatever order tools are listed.
    """
    whole = {name: f"{server}{SEPARATOR}{_OTHERS.sub('_', name)}" for name in names}
    held = Counter(whole.values())
    return {
        name: made if _fits(server, name, made, held[made]) else _hashed(made, name)
        for name, made in whole.items()
    }


def _fits(server: str, name: str, made: str, held: int) -> bool:
    unchanged = made == f"{server}{SEPARATOR}{name}"
    return len(made) <= MOST_CHARS and (unchanged or held == 1)


def _hashed(made: str, name: str) -> str:
    digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{made[: MOST_CHARS - _DIGITS - 1]}_{digits}"
