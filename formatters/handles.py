"""Handles, which name messages that a model wasn't shown, and previews of long texts."""

import base64
import hashlib
import re
from bisect import bisect_right
from itertools import accumulate
from typing import Final

from formatters.guard import Guard, Place, normalize
from formatters.model import PreviewLimit

#: Characters of a handle; none has more tokens than characters.
HANDLE_CHARS: Final = 8
#: No handle has more tokens: in it, each character is one.
LONGEST_HANDLE: Final = "q7x2z6v4"
_HANDLE: Final = re.compile(rf"[a-z2-7]{{{HANDLE_CHARS}}}")
#: Characters after which a line counts as the next one.
LINE_CHARS: Final = 500
_LINE: Final = re.compile(rf"[^\n]{{1,{LINE_CHARS}}}\n?|\n")
#: The share of a preview that shows the beginning; the rest shows the end.
BEGINNING: Final = 2 / 3
#: The part of the beginning and of the end that may be given up to cut at a line's end.
NEAR: Final = 3
#: The least share of a native result's tokens that a preview of it saves. Savings of less aren't
#: worth a recall: besides the rest of a result, a recall takes 82 tokens of `o200k_base` for its
#: call and for the lines above that rest, which is a quarter of 328 tokens.
LEAST_SAVED: Final = 1 / 4
#: Characters that a token rarely has.
CHARS_PER_TOKEN: Final = 16


def make_handle(row_id: str) -> str:
    """Return the short name of a row: 40 bits of a hash of its id, in base 32."""
    digest = hashlib.sha256(row_id.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest[:5]).decode().lower()


def make_summary_handle(newest_id: str) -> str:
    """Return the short name of a summary, given the id of the newest row that it covers.

    A summary that replaces it covers this row, too, so the handle can still be found.
    """
    return make_handle(f"summary up to {newest_id}")


def is_handle(text: str) -> bool:
    """Return whether a text has the form of a handle."""
    return _HANDLE.fullmatch(text) is not None


def split_lines(text: str) -> list[str]:
    """Split a text into lines, with their ends; of a long line, each `LINE_CHARS` are a line."""
    return _LINE.findall(normalize(text))


def preview(
    text: str, name: str | None, guard: Guard, limit: PreviewLimit, *, native: bool
) -> str | None:
    """Return the beginning and the end of a row's text, guarded, within the limit.

    The line between them counts the omitted text, and has the ``name`` that recalls it, if there
    is one. None if the whole text fits. As part of a ``native`` message it has no gutter, and None
    is also returned if a preview might save less than `LEAST_SAVED`.
    """
    count, tokens = limit.count, limit.tokens
    most = int(tokens / (1 - LEAST_SAVED)) if native else tokens
    if len(text.encode("utf-8", "surrogatepass")) <= most:
        return None

    def quote(part: str, place: Place) -> str:
        return guard.shatter(part) if native else guard.quote(part, place)

    # of most texts that are too long, a part is counted
    if count(quote(text[: most * CHARS_PER_TOKEN], Place.ROW)) <= most and (
        len(text) <= most * CHARS_PER_TOKEN or count(quote(text, Place.ROW)) <= most
    ):
        return None
    text, recall = normalize(text), f"; recall id {name}" if name else ""
    ends = [*accumulate(map(len, split_lines(text)))]

    def show(chars: int) -> str:
        head = int(chars * BEGINNING)
        tail = len(text) - (chars - head)
        # at the ends of lines, if these aren't far
        head = text.rfind("\n", head - head // NEAR, head) + 1 or head
        tail = text.find("\n", tail, tail + (len(text) - tail) // NEAR) + 1 or tail
        first, last = bisect_right(ends, head) + 1, bisect_right(ends, tail - 1) + 1
        mark = f"[left out: lines {first} to {last} of {len(ends)}{recall}]"
        # the end is at the beginning of a line, so it is quoted for itself
        return f"{quote(text[:head], Place.ROW)}\n{mark}\n{quote(text[tail:], Place.BLOCK)}"

    best, low, high = show(0), 1, min(len(text) - 1, tokens * CHARS_PER_TOKEN)
    while low <= high:
        chars = (low + high) // 2
        shown = show(chars)
        if count(shown) <= tokens:
            best, low = shown, chars + 1
        else:
            high = chars - 1
    return best
