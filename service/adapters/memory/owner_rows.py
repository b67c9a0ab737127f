"""The rows of one owner in memory: sorted lists by conversation, flags, archive and summaries."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate, islice
from typing import NamedTuple

from formatters.model import Summary
from service.adapters.store_records import IndexKeys, Record, microseconds
from service.budget.counting import MESSAGE_OVERHEAD
from service.ports.stores import ArchivedRow, SearchRequest
from service.recall.search import (
    MAX_DATED,
    MAX_FOUND,
    ROWS_AFTER,
    ROWS_BEFORE,
    ROWS_TO_CALL,
    Hit,
    IndexQuery,
    RowPosition,
    TermStatistics,
    choose_query,
    merge_hits,
    most_hits,
    near_rank,
    rank_hits,
    take_best,
    take_dated,
    token_ranges,
)

#: The same for all owners, as each is searched alone.
_KEYS = IndexKeys("")


class StoredRow(NamedTuple):
    """A row in its order: tuples sort by time, then by arrival."""

    sort_time: int
    sequence: int
    record: Record
    #: The keys of its terms, and of its conversation; empty for rows that searches never find.
    keys: frozenset[int]

    def matches(self, query: IndexQuery) -> bool:
        """Return whether it has a single term, or both terms of a pair."""
        return not self.keys.isdisjoint(query.alone) or any(map(self.keys.issuperset, query.pairs))


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
    #: Oldest first.
    archive: list[ArchivedRow] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    #: By the id of a row, the model that made its vector, and the vector.
    vectors: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    #: The token of the lease on summarising, and its end in microseconds since 1970.
    claim: tuple[str, int] = ("", 0)
    #: The sort time of the newest row, pruned or not.
    newest: int | None = None
    #: The number of the row that was added last.
    last_sequence: int = 0

    def add(self, record: Record, sort_time: int) -> None:
        """Insert a row in its order, unless one with its id is stored."""
        if record.id in self.stored:
            return
        self.last_sequence += 1
        terms = record.terms
        keys = frozenset(_KEYS.of_row(terms, record.conversation_id) if terms else ())
        self.stored[record.id] = row = StoredRow(sort_time, self.last_sequence, record, keys)
        self.newest = sort_time if self.newest is None else max(self.newest, sort_time)
        self.show(row)

    def show(self, row: StoredRow) -> None:
        """Put a row into the lists."""
        for scope in {None, row.record.conversation_id}:
            insort(self.shown[scope], row)
            self.tokens[scope] += row.record.printed_tokens
            self.native[scope] += row.record.native_tokens

    def hide(self, row: StoredRow) -> None:
        """Take a row off the lists."""
        for scope in {None, row.record.conversation_id}:
            rows = self.shown[scope]
            del rows[bisect_left(rows, row)]
            self.tokens[scope] -= row.record.printed_tokens
            self.native[scope] -= row.record.native_tokens

    def without_vector(self, model: str) -> list[StoredRow]:
        """Return the rows that get vectors and have none of a model, by arrival."""
        rows = (
            row
            for row in self.shown.get(None, [])
            if row.record.is_embedded and self.vectors.get(row.record.id, ("",))[0] != model
        )
        return sorted(rows, key=lambda row: row.sequence)

    def expire(self, rows: Collection[StoredRow]) -> None:
        """Delete rows with their flags; the other rows keep their positions."""
        totals = self.tokens.copy(), self.native.copy()
        for row in rows:
            if row.record.id not in self.pruned:
                self.hide(row)
            del self.stored[row.record.id]
            self.vectors.pop(row.record.id, None)
        self.tokens, self.native = totals
        self.pruned &= self.stored.keys()
        self.fallen &= self.stored.keys()
        if not self.stored:
            self.newest = None

    def search(self, conversation_id: str | None, request: SearchRequest) -> list[StoredRow]:
        """Return the best hits with the rows around them, newest first."""
        everything, shown = (self.shown.get(scope, []) for scope in (None, conversation_id))
        terms = _KEYS(request.terms)
        counts = Counter(key for row in everything for key in row.keys.intersection(terms))
        end = self.stored.get(request.before)
        if end is None or not (counts or request.similar or request.spans):
            return []
        statistics = TermStatistics(
            rows=sum(bool(row.keys) for row in everything),
            scope=sum(bool(row.keys) for row in shown),
            having={key: counts[key] for key in terms if key in counts},
        )
        query = choose_query(statistics)
        older = shown[: bisect_left(shown, end)]
        matching = ((row.sequence, index) for index, row in enumerate(older) if row.matches(query))
        indexes = dict(nlargest(MAX_FOUND, matching))  # those that arrived last
        known = frozenset(statistics.having)
        hits = [Hit(row, known.intersection(older[index].keys)) for row, index in indexes.items()]
        most = most_hits(request.max_rows)
        ranked = rank_hits(hits, statistics, most)
        spans = [[*map(microseconds, span)] for span in request.spans]
        in_spans = [
            [row.sequence for row in older if begin <= row.sort_time < end and row.keys]
            for begin, end in spans
        ]
        dated = take_dated([rows[:MAX_DATED] for rows in in_spans], ranked, most)
        best = merge_hits(most, ranked, dated, request.similar)
        numbers = set(best)
        indexes |= {row.sequence: at for at, row in enumerate(older) if row.sequence in numbers}
        hit_indexes = [indexes[number] for number in best if number in indexes]
        around = take_best(_read_around(older, hit_indexes), request.max_rows)
        return [older[index] for index in around]


def _read_around(rows: Sequence[StoredRow], hits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranks of ranges and of hits without tokens, each with the index of a row in it.

    ``hits`` are the indexes of their rows, the best first.
    """
    totals = list(accumulate((row.record.printed_tokens for row in rows), initial=0))
    positions = [RowPosition(totals[at + 1], rows[at].record.printed_tokens) for at in hits]
    for first, last, rank in token_ranges(positions, totals[-1]):
        near = range(bisect_left(totals, first, 1) - 1, bisect_right(totals, last, 1) - 1)
        yield from ((rank, index) for index in near)
    for rank, (position, at) in enumerate(zip(positions, hits, strict=True)):
        if not position.own:
            near = range(max(at - ROWS_BEFORE, 0), min(at + ROWS_AFTER + 1, len(rows)))
            before = range(at, max(at - ROWS_TO_CALL, 0) - 1, -1)
            last_call = islice((index for index in before if _has_calls(rows[index].record)), 1)
            yield from ((near_rank(rank), index) for index in (*near, *last_call))


def _has_calls(record: Record) -> bool:
    # what a native message has besides its text and the overhead
    return record.native_tokens > record.tokens + MESSAGE_OVERHEAD
