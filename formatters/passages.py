"""Split a long text into passages at the ends of paragraphs, code blocks, lines and sentences."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

#: The index of the first character of a part of a text, and the index after the last one.
Span = tuple[int, int]

#: Shows where text is left out.
GAP: Final = "..."
#: The most passages of a text; what follows them is never shown in a passage.
MAX_PASSAGES: Final = 100

#: The least share of a passage's characters that it has where it ends at a boundary.
LEAST_FILLED: Final = 0.6
#: The same before a code block that fits whole into the next passage.
LEAST_BEFORE_CODE: Final = 0.2

_FENCE: Final = re.compile(r"^ {0,3}```", re.MULTILINE)
#: A line that opens or closes a code block, also in a list: its mark, and what follows that.
_CODE_MARK: Final = re.compile(
    r"^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})(.*)$", re.MULTILINE
)
#: Where a passage may end, the best boundaries first.
_BOUNDARIES: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?][\"')\]]*\s|[。！？]"),
    re.compile(r"\s"),
)

#: Where a passage may begin earlier.
_BLANKS: Final = (re.compile(r"\n"), re.compile(r"\s"))


def find_passages(text: str, chars: int) -> list[Span]:
    """Return where the passages of a text are, in order.

    As `join_passages` shows it, each has at most ``chars`` characters.
    """
    return list(_spans(text, max(chars - 2 * len(f"{GAP} "), 1)))


def join_passages(text: str, spans: Iterable[Span]) -> str:
    """Return passages of a text, given in order, as one text with a `GAP` where any is left out.

    The gap is on a line of its own if they have lines. Passages that nothing but blanks separates
    are continuous. Without passages, the text is empty.
    """
    parts: list[Span] = []
    for start, end in spans:
        # a short passage begins within those before it
        if parts and not text[parts[-1][1] : start].strip():
            parts[-1] = (min(parts[-1][0], start), end)
        else:
            parts.append((start, end))
    if not parts:
        return ""
    pieces = [text[start:end].strip("\n").rstrip() for start, end in parts]
    separator = "\n" if any("\n" in piece for piece in pieces) else " "
    before, after = text[: parts[0][0]].strip() != "", text[parts[-1][1] :].strip() != ""
    shown = f"{separator}{GAP}{separator}".join(pieces)
    return f"{GAP}{separator}" * before + shown + f"{separator}{GAP}" * after


def list_continuing_code(text: str, spans: Sequence[Span]) -> list[int]:
    """Return the indices of passages that continue a code block of the passage before them."""
    blocks = _find_code(text)
    ends = enumerate((end for _, end in spans[:-1]), 1)
    return [index for index, end in ends if any(_is_cut_at(text, block, end) for block in blocks)]


def _is_cut_at(text: str, block: Span, index: int) -> bool:
    """Return whether a block begins before an index, and has more than blanks after it."""
    start, end = block
    return start < index < end and text[index:end].strip() != ""


def _find_code(text: str) -> list[Span]:
    """Return where the code is that code blocks hold, without their marks."""
    blocks: list[Span] = []
    opened, start = "", 0
    for line in _CODE_MARK.finditer(text) if "```" in text or "~~~" in text else ():
        mark, after = line.groups()
        if opened:
            if mark.startswith(opened) and not after.strip():
                blocks.append((start, line.start()))
                opened = ""
        elif mark[0] not in after:  # else it is code within a sentence
            opened, start = mark, line.end()
    return [*blocks, (start, len(text))] if opened else blocks


def _spans(text: str, size: int) -> Iterator[Span]:
    """Yield the first and the last index of each passage that isn't blank.

    A short one begins earlier, within the passage before it, as it is often shown without that one.
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
