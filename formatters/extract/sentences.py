"""Cut a text into sentences, whatever its language."""

import re
from collections.abc import Iterator
from typing import Final

#: Characters of a sentence at most; what is longer is cut where there is a blank.
MOST_CHARS: Final = 320

#: What ends a sentence: a full stop of Latin scripts before a blank, or one of scripts that put
#: no blank behind it.
_END: Final = re.compile(
    r"(?<=[.!?…])[\"'”’)\]]{0,2}+\s++|(?<=[。！？।؟])[」』”’）]{0,2}+\s*+|[\r\n]++"
)

#: A full stop behind these ends no sentence: initials, and what is written short in English.
_SHORT: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|approx|No|Inc|Jr|Sr|Prof)\.$"
)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line and of `MOST_CHARS` at most."""
    start = 0
    for end in _END.finditer(text):
        piece = text[start : end.end()]
        if "\n" not in end[0] and _SHORT.search(text[max(start, end.start() - 8) : end.start()]):
            continue
        start = end.end()
        yield from _bounded(piece)
    yield from _bounded(text[start:])


def _bounded(piece: str) -> Iterator[str]:
    line = " ".join(piece.split())
    start = 0
    while len(line) - start > MOST_CHARS:
        blank = line.rfind(" ", start + MOST_CHARS // 2, start + MOST_CHARS)
        end = blank if blank > 0 else start + MOST_CHARS
        yield line[start:end].strip()
        start = end
    if rest := line[start:].strip():
        yield rest
