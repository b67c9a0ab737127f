"""What an owner's rows in memory are found by."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from service.adapters.term_keys import TermKeys
from service.recall.searching import MOST_FOUND, Hit, Known, Query

#: Of any owner: each has an index of its own.
_KEYS = TermKeys("")


class TermIndex:
    """The terms of rows by their numbers, and the numbers of rows by their terms."""

    def __init__(self) -> None:
        self._terms: dict[int, frozenset[int]] = {}
        self._having: defaultdict[int, set[int]] = defaultdict(set)

    def add(self, number: int, terms: Sequence[str], conversation: str | None) -> None:
        """Have a row found, if it has any terms."""
        if terms:
            self._terms[number] = keys = frozenset(_KEYS.of_row(terms, conversation))
            for key in keys:
                self._having[key].add(number)

    def remove(self, number: int) -> None:
        """Have a row found no more."""
        for key in self._terms.pop(number, ()):
            self._having[key].discard(number)
            if not self._having[key]:
                del self._having[key]

    def known(self, terms: Iterable[str], conversation: str | None) -> Known:
        """Return how many rows have which of these terms."""
        rows = len(self._terms)
        scope = rows if conversation is None else self._count(_KEYS.conversation(conversation))
        having = {key: count for key in _KEYS(terms) if (count := self._count(key))}
        return Known(rows=rows, scope=scope, having=having)

    def hits(self, query: Query, known: Known, among: Collection[int]) -> Iterable[Hit]:
        """Return the newest of these rows that a query asks for, so many at most."""
        numbers = set[int]().union(*(self._having[key] for key in query.alone))
        numbers.update(*(self._having[one] & self._having[other] for one, other in query.pairs))
        asked = (number for number in sorted(numbers, reverse=True) if number in among)
        for number in islice(asked, MOST_FOUND):
            yield Hit(number, known.having.keys() & self._terms[number])

    def _count(self, key: int) -> int:
        return len(self._having[key]) if key in self._having else 0
