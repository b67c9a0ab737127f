"""Fit history by relevance: the newest turns in their place, rows of older ones beside them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from formatters.model import BEYOND_LIMIT, Block, Count, Entry, Passage, Role
from formatters.recalled import day_line, insert_day_lines
from service.budget.counting import block_tokens, entry_tokens, last_tokens
from service.budget.decisions import PRESENT, BlockOutcome, Decision, Outcome
from service.budget.fit_history import FittedHistory, fit_history, fixed_tokens, make_groups
from service.budget.groups import Fit, Recalls, recalls
from service.budget.strategies.oldest_first import OldestFirst

#: Rows in turn that don't fit, after which no more are tried.
MOST_MISSES: Final = 100
#: Characters that a token seldom has; a row that has more for each one left isn't counted.
CHARS_A_TOKEN: Final = 12

_WORD: Final = re.compile(r"[^\W_]+")


def select_rows(
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
        words, section = normalized_words(rows[place]), sections[place]
        if words in heard:
            repeated.add(place)
            continue
        tokens = _tokens(rows[place], room, count)
        line = 0 if section in opened else entry_tokens(day_line(rows[place].day), count)
        if tokens + line > room:
            misses += 1
            continue
        misses = 0
        room -= tokens + line
        bought[place] = tokens
        opened.add(section)
        heard.add(words)
    return bought, repeated


def normalized_words(row: Entry) -> str:
    """Return the words of a row, whatever their case and what stands between them."""
    text = row.passage.text if row.passage else row.text
    return " ".join(_WORD.findall(text.casefold())) or text


def _sections(rows: Sequence[Entry]) -> list[int]:
    """Number the stretches of rows that stand under one line; one more may be kept than needed."""
    changes = (int(one.day != other.day) for one, other in pairwise(rows))
    return list(accumulate(changes, initial=0))


def _tokens(row: Entry, room: int, count: Count) -> int:
    """Return what a row costs wherever it stands, or more than there is."""
    if len(row.text) > room * CHARS_A_TOKEN:
        return room + 1
    return max(entry_tokens(row, count), last_tokens(row, count))


#: Outcomes that hold whatever is recalled.
_SETTLED: Final = PRESENT | {"filtered"}

_NEWEST: Final = OldestFirst()

#: Score the rows that may be recalled, by what is asked now.
RankRows = Callable[[Sequence[Passage]], Sequence[float]]


def make_ranker(strategy: object, question: str, now: datetime | None) -> RankRows | None:
    """Return how a strategy scores rows by what is asked now; None where it recalls none."""
    ranker = strategy.rank if recalls(strategy) else None
    return (lambda passages: ranker(question, passages, now)) if ranker else None


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What may be recalled, and how that is decided."""

    #: A block with an entry for each row of the history, in order.
    rows: Block
    strategy: Recalls
    rank: RankRows


class RowOutcome(NamedTuple):
    """What became of a row that is in none of the newest turns."""

    #: Its place among the rows.
    place: int
    outcome: Outcome
    #: A code of `service.budget.decisions.REASONS`.
    reason: str
    #: None where it was not bought.
    tokens: int | None
    score: float


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """What became of the candidates of the newest turns, and of the rows beside them."""

    #: The block of history before any of it was left out.
    block: Block
    #: Of the newest turns.
    shown: BlockOutcome
    rows: Block
    #: Rows that are in none of these, in their order.
    recalled: Sequence[RowOutcome]

    @property
    def fit(self) -> Fit:
        """Return what was chosen of the newest turns."""
        return self.shown.fit

    @property
    def saved(self) -> int:
        """Return the tokens saved on the newest turns; what was not recalled is never counted."""
        return self.shown.saved

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decide on every candidate: on rows that could be recalled, then on the newest turns."""
        told = [each for each in self.shown.decisions if each.outcome in _SETTLED]
        settled = {id_ for decision in told for id_ in decision.message_ids}
        rows = list(self._rows(settled))
        settled.update(id_ for decision in rows for id_ in decision.message_ids)
        return (*rows, *self._left(settled), *told)

    def _rows(self, settled: Set[str]) -> Iterator[Decision]:
        for place, outcome, reason, tokens, score in self.recalled:
            messages = self.rows.entries[place].messages
            # repair may have settled a result that goes with a row
            ids = tuple(message.id for message in messages if message.id not in settled)
            block = self.rows if outcome in PRESENT else self.block
            yield Decision(ids, block.tag, outcome, reason, tokens, round(score, 2))

    def _left(self, settled: Set[str]) -> Iterator[Decision]:
        """Decide on what no row has for itself, as where newer calls of its run are shown."""
        candidates = (
            *(each.message_ids for each in self.block.omissions if each.reason == BEYOND_LIMIT),
            *((message.id for message in entry.messages) for entry in self.block.entries),
        )
        for names in candidates:
            ids = tuple(id_ for id_ in names if id_ not in settled)
            if ids:
                yield Decision(ids, self.block.tag, "dropped", "older")


@dataclass(frozen=True, slots=True)
class FittedRecall:
    """History as it is sent, and what was recalled beside it."""

    #: Before any of it was left out.
    whole: Block
    history: FittedHistory
    outcome: BlockOutcome | RecallOutcome
    #: None where nothing was recalled.
    recalled: Block | None = None

    @property
    def parts(self) -> Mapping[str, tuple[Block, ...]]:
        """Return what is sent in place of which block."""
        recalled = {self.recalled.tag: (self.recalled,)} if self.recalled else {}
        return {self.whole.tag: self.history.blocks, **recalled}


def fit_recall(block: Block, recalling: RecallRequest, room: int, count: Count) -> FittedRecall:
    """Share so many tokens between the newest turns and rows of older ones.

    Where all of history fits it is shown as ever, and nothing is recalled.
    """
    entries = _newest_that_fit(block, room - fixed_tokens(block, count), count)
    beyond = any(each.reason == BEYOND_LIMIT for each in block.omissions)
    # what was not read may not let the first row move where that is to stay
    moves = block.moves and recalling.strategy.stable_prefix
    if len(entries) == len(block.entries) and not (beyond or moves):
        history = fit_history(block, _NEWEST, room, count)
        return FittedRecall(block, history, history.outcome)
    newest = _newest_turns(replace(block, entries=entries), recalling.strategy, room, count)
    history = fit_history(newest, _NEWEST, room, count)
    choice = _Choice(recalling, room - block_tokens(history.block, count), count)
    fates, recalled = choice.made(block, history)
    told = RecallOutcome(block, history.outcome, recalling.rows, fates)
    return FittedRecall(block, history, told, recalled)


def _newest_that_fit(block: Block, room: int, count: Count) -> tuple[Entry, ...]:
    """Return the newest entries that fit, at least one, without counting all that there are."""
    used = 0
    for taken, entry in enumerate(reversed(block.entries)):
        used += entry_tokens(entry, count) if taken else last_tokens(entry, count)
        if used > room:
            return block.entries[-max(taken, 1) :]
    return block.entries


def _newest_turns(block: Block, strategy: Recalls, room: int, count: Count) -> Block:
    """Return the block with the newest turns that the strategy has in their place."""
    recent = strategy.recent(make_groups(block, count), room - fixed_tokens(block, count))
    entries = tuple(block.entries[group.index] for group in recent.kept)
    return replace(block, entries=entries, moves=not recent.stable_prefix)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Rows to choose from, and the tokens for them."""

    recalling: RecallRequest
    room: int
    count: Count

    def made(self, whole: Block, history: FittedHistory) -> tuple[list[RowOutcome], Block | None]:
        """Recall what scores highest; return what became of each row, and the block."""
        rows = self.recalling.rows.entries
        shown = {message.id for entry in history.block.entries for message in entry.messages}
        filtered = {
            id_
            for omission in whole.omissions
            if omission.reason != BEYOND_LIMIT
            for id_ in omission.message_ids
        }
        there = {
            place
            for place, entry in enumerate(rows)
            if any(message.id in shown for message in entry.messages)
        }
        places = [
            place
            for place, entry in enumerate(rows)
            if place not in there and not _is_filtered(entry, filtered)
        ]
        return (
            self._of(places, {normalized_words(rows[place]) for place in there})
            if places
            else ([], None)
        )

    def _of(self, places: Sequence[int], said: Set[str]) -> tuple[list[RowOutcome], Block | None]:
        rows = self.recalling.rows
        scores = self.recalling.rank([each.passage for each in rows.entries if each.passage])
        # of two that score alike the newer goes first
        ranked = sorted(places, key=lambda place: (scores[place], place), reverse=True)
        room = self.room - fixed_tokens(rows, self.count)
        bought, repeated = select_rows(rows.entries, ranked, said, room, self.count)
        fates = []
        for place in places:
            tokens = bought.get(place)
            if tokens is None:
                reason = "repeated" if place in repeated else "score"
                fates.append(RowOutcome(place, "dropped", reason, None, scores[place]))
            else:
                outcome: Outcome = "truncated" if rows.entries[place].cut else "kept"
                fates.append(RowOutcome(place, outcome, "recalled", tokens, scores[place]))
        entries = insert_day_lines([rows.entries[place] for place in sorted(bought)])
        return fates, replace(rows, entries=entries) if bought else None


def _is_filtered(entry: Entry, filtered: Set[str]) -> bool:
    """Tell whether a row prints what repair has left out of native history."""
    return any(each.id in filtered for each in entry.messages if each.role is not Role.TOOL)
