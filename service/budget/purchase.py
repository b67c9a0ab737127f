"""Buy rows for tokens, the best first; each day's line is paid for with its first row."""

import re
from collections.abc import Iterable, Sequence, Set
from itertools import accumulate, pairwise
from typing import Final

from formatters.model import Count, Entry
from formatters.recalled import day_line
from service.budget.counting import entry_tokens, last_tokens

#: Rows in turn that don't fit, after which no more are tried.
MOST_MISSES: Final = 100
#: Characters that a token seldom has; a row that has more for each one left isn't counted.
CHARS_A_TOKEN: Final = 12

_WORD: Final = re.compile(r"[^\W_]+")


def buy(
    rows: Sequence[Entry], ranked: Iterable[int], said: Set[str], room: int, count: Count
) -> tuple[dict[int, int], set[int]]:
    """Return what rows cost that fit together, by their place, and places that repeat others.

    ``ranked`` are places, the best first. What ``said`` or a bought row says already isn't bought.
    """
    heard = set(said)
    sections = _sections(rows)
    opened: set[int] = set()
    bought: dict[int, int] = {}
    repeated: set[int] = set()
    misses = 0
    for place in ranked:
        if misses == MOST_MISSES:
            break
        words, section = words_of(rows[place]), sections[place]
        if words in heard:
            repeated.add(place)
            continue
        tokens = _tokens(rows[place], room, count)
        line = 0 if section in opened else entry_tokens(day_line(rows[place].under), count)
        if tokens + line > room:
            misses += 1
            continue
        misses = 0
        room -= tokens + line
        bought[place] = tokens
        opened.add(section)
        heard.add(words)
    return bought, repeated


def words_of(row: Entry) -> str:
    """Return the words of a row, whatever their case and what stands between them."""
    text = row.passage.text if row.passage else row.text
    return " ".join(_WORD.findall(text.casefold())) or text


def _sections(rows: Sequence[Entry]) -> list[int]:
    """Number the stretches of rows that stand under one line; one more may be kept than needed."""
    changes = (int(one.under != other.under) for one, other in pairwise(rows))
    return list(accumulate(changes, initial=0))


def _tokens(row: Entry, room: int, count: Count) -> int:
    """Return what a row costs wherever it stands, or more than there is."""
    if len(row.text) > room * CHARS_A_TOKEN:
        return room + 1
    return max(entry_tokens(row, count), last_tokens(row, count))
