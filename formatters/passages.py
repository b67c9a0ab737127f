"""Split a long text into passages at the ends of paragraphs, code blocks, lines and sentences."""

import re
from collections.abc import Iterator
from typing import Final

#: Shows where text is left out.
GAP: Final = "..."
#: The most passages of a text; what follows them is never shown in a passage.
MAX_PASSAGES: Final = 40

#: The least share of a passage's characters that it has where it ends at a boundary.
LEAST_FILLED: Final = 0.6
#: The same before a code block that fits whole into the next passage.
LEAST_BEFORE_CODE: Final = 0.2

_FENCE: Final = re.compile(r"^ {0,3}```", re.MULTILINE)
#: Where a passage may end, the best boundaries first.
_BOUNDARIES: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?][\"')\]]*\s|[。！？]"),
    re.compile(r"\s"),
)

#: Where a passage may begin earlier.
_BLANKS: Final = (re.compile(r"\n"), re.compile(r"\s"))


def split_passages(text: str, chars: int) -> list[str]:
    """Return the passages of a text in order, each of at most ``chars`` characters.

    Those that don't begin or end with the text have a `GAP` there, on a line of its own if they
    have lines.
    """
    spans = list(_spans(text, max(chars - 2 * len(f"{GAP} "), 1)))
    return [_mark_gaps(text[i:j].strip("\n").rstrip(), i > 0, j < len(text)) for i, j in spans]


def _mark_gaps(passage: str, before: bool, after: bool) -> str:
    separator = "\n" if "\n" in passage else " "
    return f"{GAP}{separator}" * before + passage + f"{separator}{GAP}" * after


def _spans(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of each passage that isn't blank.

    A short one begins earlier, within the passage before it, as only one of them will be shown.
    """
    start = 0
    for _ in range(MAX_PASSAGES):
        end = len(text) if len(text) - start <= size else start + _length(text[start:], size)
        if not text[start:end].isspace():
            yield _begin(text, start, end, size), end
        start = end
        if start == len(text):
            return


def _begin(text: str, start: int, end: int, size: int) -> int:
    """Return where a passage begins that has almost ``size`` characters, if there are as many."""
    if end - start >= LEAST_FILLED * size or not start:
        return start
    first = max(end - size, 0)
    found = next(filter(None, (each.search(text, first, start) for each in _BLANKS)), None)
    return found.end() if found else start


def _length(text: str, size: int) -> int:
    """Return the length of the first passage of a text that is longer than ``size``."""
    fences = [match.start() for match in _FENCE.finditer(text, 0, 2 * size)]
    inside = [fence for fence in fences if fence < size]
    if len(inside) % 2 and inside[-1] >= LEAST_BEFORE_CODE * size:
        closing = next((fence for fence in fences if fence >= size), None)
        if closing is not None and closing + 3 - inside[-1] <= size:
            return inside[-1]
    for boundary in _BOUNDARIES:
        ends = [match.end() for match in boundary.finditer(text, int(LEAST_FILLED * size), size)]
        if ends:
            return ends[-1]
    return size
