"""The rows of one owner in memory: sorted lists by conversation, flags, archive, search index."""

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
from service.adapters.store_records import IndexKeys, Record
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

#: The same for all owners, as each has an index of its own.
_KEYS = IndexKeys("")


class SearchIndex:
    """The keys of rows by their sequence numbers, and the numbers of rows by their keys."""

    def __init__(self) -> None:
        self._keys: dict[int, frozenset[int]] = {}
        self._numbers: defaultdict[int, set[int]] = defaultdict(set)

    def add(self, number: int, terms: Sequence[str], conversation: str | None) -> None:
        """Index a row, if it has any terms."""
        if terms:
            self._keys[number] = keys = frozenset(_KEYS.of_row(terms, conversation))
            for key in keys:
                self._numbers[key].add(number)

    def remove(self, number: int) -> None:
        """Remove a row, if it is indexed."""
        for key in self._keys.pop(number, ()):
            self._numbers[key].discard(number)
            if not self._numbers[key]:
                del self._numbers[key]

    def statistics(self, terms: Iterable[str], conversation: str | None) -> TermStatistics:
        """Count the rows that have each of these terms."""
        rows = len(self._keys)
        scope = rows if conversation is None else self._count(_KEYS.conversation(conversation))
        having = {key: count for key in _KEYS(terms) if (count := self._count(key))}
        return TermStatistics(rows=rows, scope=scope, having=having)

    def hits(
        self, query: IndexQuery, statistics: TermStatistics, among: Collection[int]
    ) -> Iterator[Hit]:
        """Yield the newest rows ``among`` these that match a query, at most `MAX_FOUND`."""
        numbers = set[int]().union(*(self._numbers[key] for key in query.alone))
        numbers.update(*(self._numbers[one] & self._numbers[other] for one, other in query.pairs))
        matching = (number for number in sorted(numbers, reverse=True) if number in among)
        for number in islice(matching, MAX_FOUND):
            yield Hit(number, statistics.having.keys() & self._keys[number])

    def _count(self, key: int) -> int:
        return len(self._numbers[key]) if key in self._numbers else 0


class StoredRow(NamedTuple):
    """A row in its order: tuples sort by time, then by arrival."""

    sort_time: int
    sequence: int
    printed_tokens: int
    native_tokens: int
    body: str
    conversation_id: str | None
    terms: Sequence[str]

    @property
    def scopes(self) -> set[str | None]:
        """Return the keys of the lists that it is in; None is the list of all rows."""
        return {None, self.conversation_id}


@dataclass(slots=True)
class OwnerRows:
    """An owner's rows."""

    #: All rows by id.
    stored: dict[str, StoredRow] = field(default_factory=dict)
    #: Rows that are not pruned, in order, by conversation; None holds all of them.
    shown: dict[str | None, list[StoredRow]] = field(default_factory=lambda: defaultdict(list))
    #: By conversation, the tokens of all shown and expired rows, printed and as native messages.
    tokens: Counter[str | None] = field(default_factory=Counter)
    native: Counter[str | None] = field(default_factory=Counter)
    pruned: set[str] = field(default_factory=set)
    fallen: set[str] = field(default_factory=set)
    #: Index of the shown rows.
    index: SearchIndex = field(default_factory=SearchIndex)
    #: Oldest first.
    archive: list[ArchivedRow] = field(default_factory=list)
    #: The sort time of the newest row, pruned or not.
    newest: int | None = None
    #: The number of the row that was added last.
    last_sequence: int = 0

    def add(self, record: Record, sort_time: int) -> None:
        """Insert a row in its order, unless one with its id is stored."""
        if record.id in self.stored:
            return
        self.last_sequence += 1
        self.stored[record.id] = row = StoredRow(
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

    def newest_first(self, conversation_id: str | None) -> Iterator[StoredRow]:
        """Yield the shown rows of a conversation, or of all."""
        return reversed(self.shown.get(conversation_id, []))

    def search(self, conversation_id: str | None, request: SearchRequest) -> list[StoredRow]:
        """Return the best hits with the rows around them, newest first."""
        statistics = self.index.statistics(request.terms, conversation_id)
        end = self.stored.get(request.before)
        if end is None or not statistics.having:
            return []
        shown = self.shown.get(conversation_id, [])
        older = bisect_left(shown, end)
        indexes = {row.sequence: index for index, row in enumerate(shown[:older])}
        hits = list(self.index.hits(choose_query(statistics), statistics, indexes))
        numbers = rank_hits(hits, statistics, request.max_rows // ROWS_PER_HIT)
        totals = list(accumulate((row.printed_tokens for row in shown[:older]), initial=0))
        positions = [
            RowPosition(totals[indexes[number] + 1], shown[indexes[number]].printed_tokens)
            for number in numbers
        ]
        rows = (
            row
            for first, last in token_ranges(positions, totals[older])
            for row in shown[bisect_left(totals, first, 1) - 1 : bisect_right(totals, last, 1) - 1]
        )
        return sorted(islice(rows, request.max_rows), reverse=True)

    def prune(self, ids: Iterable[str]) -> int:
        """Hide rows; returns how many were shown before."""
        selected = {row_id for row_id in ids if row_id in self.stored and row_id not in self.pruned}
        for row_id in selected:
            row = self.stored[row_id]
            self.index.remove(row.sequence)
            for scope in row.scopes:
                rows = self.shown[scope]
                del rows[bisect_left(rows, row)]
                self.tokens[scope] -= row.printed_tokens
                self.native[scope] -= row.native_tokens
        self.pruned |= selected
        return len(selected)

    def restore(self, ids: Iterable[str]) -> int:
        """Show hidden rows again; returns how many there were."""
        selected = self.pruned & set(ids)
        for row_id in selected:
            self._show(self.stored[row_id])
        self.pruned -= selected
        return len(selected)

    def oldest(self) -> int | None:
        """Return the sort time of the oldest row, pruned or not."""
        shown = [row.sort_time for row in self.shown.get(None, [])[:1]]
        hidden = [self.stored[row_id].sort_time for row_id in self.pruned]
        return min([*shown, *hidden], default=None)

    def expire(self, until: int, limit: int) -> list[str]:
        """Delete the oldest rows from before a sort time, with their flags; returns their ids."""
        old = {row_id: row for row_id, row in self.stored.items() if row.sort_time < until}
        expired = sorted(old, key=old.__getitem__)[:limit]
        totals = self.tokens.copy(), self.native.copy()  # the other rows keep their positions
        self.prune(expired)  # takes them off the lists
        self.tokens, self.native = totals
        for row_id in expired:
            del self.stored[row_id]
        self.pruned.difference_update(expired)
        self.fallen.difference_update(expired)
        if not self.stored:
            self.newest = None
        return expired

    def flag_fallen(self, ids: Iterable[str]) -> list[str]:
        """Flag shown rows as fallen out; returns those that were not flagged before."""
        skipped = self.pruned | self.fallen
        new = [
            row_id
            for row_id in dict.fromkeys(ids)
            if row_id in self.stored and row_id not in skipped
        ]
        self.fallen.update(new)
        return new

    def archive_rows(self, ids: Sequence[str], archiving: Archiving, now: datetime) -> None:
        """Archive rows, and delete copies that have expired."""
        self.archive = [copy for copy in self.archive if copy.at >= now - archiving.retention]
        self.archive += [
            ArchivedRow(
                row=self.row(row_id),
                reason=archiving.reasons[row_id],
                run_id=fix_surrogates(archiving.run_id),
                build_id=archiving.build_id,
                at=now,
            )
            for row_id in ids
        ]

    def row(self, row_id: str) -> Row:
        """Return a copy of a row, which the caller may change."""
        row: Row = json.loads(self.stored[row_id].body)
        return row

    def stats(self) -> HistoryStats:
        """Count the rows and flags."""
        shown = self.shown.get(None, [])
        return HistoryStats(
            rows=len(shown),
            tokens=sum(row.printed_tokens for row in shown),
            pruned=len(self.pruned),
            fallen=len(self.fallen),
            archived=len(self.archive),
        )

    def _show(self, row: StoredRow) -> None:
        self.index.add(row.sequence, row.terms, row.conversation_id)
        for scope in row.scopes:
            insort(self.shown[scope], row)
            self.tokens[scope] += row.printed_tokens
            self.native[scope] += row.native_tokens
