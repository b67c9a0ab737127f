"""Find texts in lines: the recall by ``grep`` shows the lines around a match."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence, Set
from itertools import accumulate
from typing import Final, NamedTuple

from formatters.guard import normalize

#: The places of a text in one message that are looked for.
MAX_HITS: Final = 1_000


class Hit(NamedTuple):
    """A place of a text in lines."""

    #: Its first and its last line, counted from 1.
    first: int
    last: int
    #: Its characters in these lines as they are folded.
    start: int
    end: int


def fold_case(text: str) -> str:
    """Return a text as a search compares it: as it is shown, composed, in lower case."""
    return unicodedata.normalize("NFC", normalize(text)).casefold()


def find_in_lines(lines: Sequence[str], needles: Set[str]) -> list[Hit]:
    """Return where folded texts are in lines, in order: of many places the first and the last."""
    folded = [*map(fold_case, lines)]
    starts = [0, *accumulate(map(len, folded))]
    whole = "".join(folded)
    hits = []
    for needle in needles:
        places = [at for at in [whole.rfind(needle)] if at >= 0]
        at = whole.find(needle)
        while at >= 0 and len(places) < MAX_HITS:
            places.append(at)
            at = whole.find(needle, at + len(needle))
        for place in places:
            first, last = bisect_right(starts, place), bisect_left(starts, place + len(needle))
            start = place - starts[first - 1]
            hits.append(Hit(first, last, start, start + len(needle)))
    return sorted(hits)


def find_unfolded(text: str, hit: Hit) -> tuple[int, int]:
    """Return where in the text of its lines a hit begins and ends, with the marks of its end."""

    def find(place: int) -> int:
        return bisect_right(range(len(text)), place, key=lambda at: len(fold_case(text[: at + 1])))

    # of a letter that is folded to several, all belong to the hit
    return find(hit.start), max(find(hit.end), find(hit.end - 1) + 1)
