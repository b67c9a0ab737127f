"""Split a long text into passages at the ends of paragraphs, code blocks, lines and sentences.

A long text is compared with questions by several vectors, one for each of its pieces: a passage of
`PIECE_CHARS` or, in a very long text, some passages in a row.
"""

import re
from collections.abc import Iterator
from typing import Final

#: Shows where text is left out.
GAP: Final = "..."
#: The most passages of a text; what follows them is never shown in a passage.
MAX_PASSAGES: Final = 40
#: Characters of a passage that has a vector of its own.
PIECE_CHARS: Final = 500
#: The most vectors of a text.
MAX_PIECES: Final = 16

#: The least share of a passage's characters that it has where it ends at a boundary.
LEAST_FILLED: Final = 0.6
#: The same before a code block that fits whole into the next passage.
LEAST_BEFORE_CODE: Final = 0.2

_GAPS: Final = 2 * len(f"{GAP} ")
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
    spans = list(_spans(text, max(chars - _GAPS, 1)))
    return [_mark_gaps(text[i:j].strip("\n").rstrip(), i > 0, j < len(text)) for i, j in spans]


def split_pieces(text: str) -> list[str]:
    """Return the pieces of a text that have vectors, in order; a short text is a single one."""
    if len(text) <= PIECE_CHARS:
        return [text]
    spans = list(_spans(text, PIECE_CHARS - _GAPS))
    count = min(len(spans), MAX_PIECES)
    groups: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for index, span in enumerate(spans):
        groups[pieces_of(index, len(spans), count).start].append(span)
    return [text[group[0][0] : group[-1][1]].strip() for group in groups]


def pieces_of(index: int, passages: int, pieces: int) -> slice:
    """Return which of a text's pieces a passage is in, by the number of its passages."""
    first = index * pieces // passages
    return slice(first, max((index + 1) * pieces // passages, first + 1))


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
