"""The rows of one owner in memory: in order by conversation, with the marks that they bear."""

import json
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, islice
from typing import NamedTuple

from formatters.model import Row
from formatters.rows import fix_surrogates
from service.adapters.store_records import Record, TermKeys
from service.ports.stores import ArchivedRow, Archiving, HistoryStats
from service.recall.search import (
    MAX_FOUND,
    ROWS_PER_HIT,
    Hit,
    IndexQuery,
    RowPosition,
    SearchRequest,
    TermStatistics,
    choose_query,
    rank_hits,
    token_ranges,
)

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

    def known(self, terms: Iterable[str], conversation: str | None) -> TermStatistics:
        """Return how many rows have which of these terms."""
        rows = len(self._terms)
        scope = rows if conversation is None else self._count(_KEYS.conversation(conversation))
        having = {key: count for key in _KEYS(terms) if (count := self._count(key))}
        return TermStatistics(rows=rows, scope=scope, having=having)

    def hits(
        self, query: IndexQuery, known: TermStatistics, among: Collection[int]
    ) -> Iterable[Hit]:
        """Return the newest of these rows that a query asks for, so many at most."""
        numbers = set[int]().union(*(self._having[key] for key in query.alone))
        numbers.update(*(self._having[one] & self._having[other] for one, other in query.pairs))
        asked = (number for number in sorted(numbers, reverse=True) if number in among)
        for number in islice(asked, MAX_FOUND):
            yield Hit(number, known.having.keys() & self._terms[number])

    def _count(self, key: int) -> int:
        return len(self._having[key]) if key in self._having else 0


class Kept(NamedTuple):
    """A row in its place: tuples sort by time, then by arrival."""

    sort_time: int
    sequence: int
    printed_tokens: int
    native_tokens: int
    body: str
    conversation_id: str | None
    terms: Sequence[str]

    @property
    def scopes(self) -> set[str | None]:
        """Return the lists that it stands in; None is that of all rows."""
        return {None, self.conversation_id}


@dataclass(slots=True)
class OwnerRows:
    """An owner's rows."""

    #: All of them, by id.
    kept: dict[str, Kept] = field(default_factory=dict)
    #: Those that are not pruned, in order by conversation; None holds them all.
    shown: dict[str | None, list[Kept]] = field(default_factory=lambda: defaultdict(list))
    #: Tokens of all that are shown, by conversation, and of those that have expired; as text, and
    #: as native messages.
    tokens: Counter[str | None] = field(default_factory=Counter)
    native: Counter[str | None] = field(default_factory=Counter)
    pruned: set[str] = field(default_factory=set)
    fallen: set[str] = field(default_factory=set)
    #: Of the rows that are shown.
    terms: TermIndex = field(default_factory=TermIndex)
    #: Oldest first.
    archive: list[ArchivedRow] = field(default_factory=list)
    #: The sort time of the newest row, pruned or not.
    newest: int | None = None
    #: The number of the row that was added last.
    last_sequence: int = 0

    def add(self, record: Record, sort_time: int) -> None:
        """Put a row in its place, unless there is one with its id."""
        if record.id in self.kept:
            return
        self.last_sequence += 1
        self.kept[record.id] = row = Kept(
            sort_time,
            self.last_sequence,
            record.printed_tokens,
            record.native_tokens,
            record.body,
            record.conversation_id,
            record.terms,
        )
        self.newest = sort_time if self.newest is None else max(self.newest, sort_time)
        self._show(row)

    def newest_first(self, conversation_id: str | None) -> Iterator[Kept]:
        """Yield the rows that are shown of a conversation, or of all."""
        return reversed(self.shown.get(conversation_id, []))

    def found(self, conversation_id: str | None, asked: SearchRequest) -> list[Kept]:
        """Return rows that terms tell of with those around them, newest first."""
        known = self.terms.known(asked.terms, conversation_id)
        end = self.kept.get(asked.before)
        if end is None or not known.having:
            return []
        shown = self.shown.get(conversation_id, [])
        older = bisect_left(shown, end)
        places = {row.sequence: place for place, row in enumerate(shown[:older])}
        hits = list(self.terms.hits(choose_query(known), known, places))
        numbers = rank_hits(hits, known, asked.max_rows // ROWS_PER_HIT)
        totals = list(accumulate((row.printed_tokens for row in shown[:older]), initial=0))
        spots = [
            RowPosition(totals[places[number] + 1], shown[places[number]].printed_tokens)
            for number in numbers
        ]
        read = (
            row
            for first, last in token_ranges(spots, totals[older])
            for row in shown[bisect_left(totals, first, 1) - 1 : bisect_right(totals, last, 1) - 1]
        )
        return sorted(islice(read, asked.max_rows), reverse=True)

    def prune(self, ids: Iterable[str]) -> int:
        """Hide rows; returns how many were shown before."""
        chosen = {name for name in ids if name in self.kept and name not in self.pruned}
        for name in chosen:
            row = self.kept[name]
            self.terms.remove(row.sequence)
            for scope in row.scopes:
                rows = self.shown[scope]
                del rows[bisect_left(rows, row)]
                self.tokens[scope] -= row.printed_tokens
                self.native[scope] -= row.native_tokens
        self.pruned |= chosen
        return len(chosen)

    def restore(self, ids: Iterable[str]) -> int:
        """Show hidden rows again; returns how many there were."""
        chosen = self.pruned & set(ids)
        for name in chosen:
            self._show(self.kept[name])
        self.pruned -= chosen
        return len(chosen)

    def oldest(self) -> int | None:
        """Return the sort time of the oldest row, pruned or not."""
        shown = [row.sort_time for row in self.shown.get(None, [])[:1]]
        hidden = [self.kept[name].sort_time for name in self.pruned]
        return min([*shown, *hidden], default=None)

    def expire(self, until: int, limit: int) -> list[str]:
        """Delete the oldest rows from before a sort time, with their marks; returns their ids."""
        old = {name: row for name, row in self.kept.items() if row.sort_time < until}
        gone = sorted(old, key=old.__getitem__)[:limit]
        totals = self.tokens.copy(), self.native.copy()  # what is left stands where it did
        self.prune(gone)  # takes them off the lists
        self.tokens, self.native = totals
        for name in gone:
            del self.kept[name]
        self.pruned.difference_update(gone)
        self.fallen.difference_update(gone)
        if not self.kept:
            self.newest = None
        return gone

    def flag_fallen(self, ids: Iterable[str]) -> list[str]:
        """Mark rows that are shown as fallen out; returns those that were not marked before."""
        unknown = self.pruned | self.fallen
        new = [name for name in dict.fromkeys(ids) if name in self.kept and name not in unknown]
        self.fallen.update(new)
        return new

    def copy(self, ids: Sequence[str], archiving: Archiving, now: datetime) -> None:
        """Archive rows, and forget copies that have grown too old."""
        self.archive = [row for row in self.archive if row.at >= now - archiving.retention]
        self.archive += [
            ArchivedRow(
                row=self.row(name),
                reason=archiving.reasons[name],
                run_id=fix_surrogates(archiving.run_id),
                build_id=archiving.build_id,
                at=now,
            )
            for name in ids
        ]

    def row(self, name: str) -> Row:
        """Return a row as a reader's own."""
        row: Row = json.loads(self.kept[name].body)
        return row

    def stats(self) -> HistoryStats:
        """Count what there is."""
        shown = self.shown.get(None, [])
        return HistoryStats(
            rows=len(shown),
            tokens=sum(row.printed_tokens for row in shown),
            pruned=len(self.pruned),
            fallen=len(self.fallen),
            archived=len(self.archive),
        )

    def _show(self, row: Kept) -> None:
        self.terms.add(row.sequence, row.terms, row.conversation_id)
        for scope in row.scopes:
            insort(self.shown[scope], row)
            self.tokens[scope] += row.printed_tokens
            self.native[scope] += row.native_tokens
