"""Fit history by relevance: the newest turns, and rows of older ones in a block of their own.

The newest turns are fitted first. The tokens that they leave go to rows of older turns, those with
the highest scores first.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise, takewhile
from operator import itemgetter
from typing import Final

from formatters.model import BEYOND_LIMIT, Block, Count, Entry, Passage, Role
from formatters.recalled import insert_day_lines, make_day_line
from service.budget.counting import (
    block_tokens,
    entry_tokens,
    fixed_tokens,
    last_tokens,
    make_groups,
)
from service.budget.decisions import (
    Decision,
    FittedBlock,
    RecalledRows,
    RecallOutcome,
    decide_on_entry,
    list_ids,
)
from service.budget.fit_history import fit_history
from service.budget.groups import explain_ranking
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import WHOLE_TURN_SHARE, Relevance

#: Consecutive rows that don't fit, after which no more are tried.
MAX_MISSES: Final = 100
#: Characters that a token rarely has; a row with more of them per remaining token isn't counted.
CHARS_PER_TOKEN: Final = 12
#: The most rows that are counted for the decisions on them alone.
MAX_EXPLAINED: Final = 1_000

_NEWEST: Final = OldestFirst()
#: What may differ at the end of texts that say the same.
_ENDINGS: Final = ".!, "

#: Score the rows that may be recalled by their relevance to the current input.
RankRows = Callable[[Sequence[Passage]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The rows that may be recalled, and how to choose among them."""

    #: A block with an entry for each row of the history, in order.
    rows: Block
    strategy: Relevance
    rank: RankRows
    #: Whether rows that aren't recalled are counted, too.
    explain: bool = False


def fit_recall(block: Block, request: RecallRequest, room: int, count: Count) -> FittedBlock:
    """Share ``room`` tokens between the newest turns and rows of older ones.

    If all of history fits, it is shown as with any strategy and nothing is recalled.
    """
    entries = _newest_entries(block, room - fixed_tokens(block, count), count)
    has_older_rows = any(omission.reason == BEYOND_LIMIT for omission in block.omissions)
    # older rows that were not read would move the start of the block in the next build
    has_moving_start = block.moves and request.strategy.stable_prefix
    if len(entries) == len(block.entries) and not (has_older_rows or has_moving_start):
        fitted = fit_history(block, _NEWEST, room, count)
        hides = not block.native and (
            any(row.passages for row in request.rows.entries)
            or any(map(_hidden_results, block.entries))
        )
        return _with_recalled(block, fitted, request, room, count) if hides else fitted
    newest = replace(block, entries=entries)
    tokens = room - fixed_tokens(newest, count)
    recent = request.strategy.recent(make_groups(newest, count), tokens)
    shown = tuple(entries[group.index] for group in recent.kept)
    if len(shown) == 1 and not request.strategy.stable_prefix:
        shown = (_latest_that_fit(shown[0], int(tokens * WHOLE_TURN_SHARE), count),)
    newest_turns = replace(block, entries=shown, moves=not recent.stable_prefix)
    fitted = fit_history(newest_turns, _NEWEST, room, count)
    return _with_recalled(block, fitted, request, room, count)


def _with_recalled(
    block: Block, fitted: FittedBlock, request: RecallRequest, room: int, count: Count
) -> FittedBlock:
    """Return the newest turns with the rows that are recalled into the room that they leave."""
    remaining = room - block_tokens(fitted.block, count)
    rows = recall_rows(block, fitted.block, request, remaining, count)
    return replace(fitted, recall=RecallOutcome(block, fitted, rows))


def _hidden_results(entry: Entry) -> set[str]:
    """Return the ids of the tool results of which a turn shows the call only."""
    hidden = (m.id for m in entry.messages if m.role is Role.TOOL and m.content.strip())
    return {id_ for id_ in hidden if entry.reasons.get(id_) == "call_only"}


def _latest_that_fit(turn: Entry, room: int, count: Count) -> Entry:
    """Return a turn if it fits, else its last answers that do, at least one."""
    answers = sum(message.role is Role.AI for message in turn.messages)
    if turn.latest is None or answers < 2 or last_tokens(turn, count) <= room:
        return turn
    latest = turn.latest
    fitting = bisect_left(
        range(2, answers), True, key=lambda number: last_tokens(latest(number), count) > room
    )
    return latest(1 + fitting)


def _newest_entries(block: Block, room: int, count: Count) -> tuple[Entry, ...]:
    """Return the newest entries that fit, at least one, without counting the older ones."""
    used = 0
    for taken, entry in enumerate(reversed(block.entries)):
        used += entry_tokens(entry, count) if taken else last_tokens(entry, count)
        if used > room:
            return block.entries[-max(taken, 1) :]
    return block.entries


def recall_rows(
    whole: Block, newest: Block, request: RecallRequest, room: int, count: Count
) -> RecalledRows:
    """Recall the rows with the highest scores.

    What the newest turns show, and what repair has removed from native history, is excluded.
    """
    rows = request.rows.entries
    shown_ids = {message.id for entry in newest.entries for message in entry.messages}
    shown_ids = shown_ids.difference(*map(_hidden_results, newest.entries))
    shown = {i for i, row in enumerate(rows) for message in row.messages if message.id in shown_ids}
    # of a row that the newest turns show in part, another part may be recalled
    partly = {i for i in shown if not newest.native and any(map(_continues, rows[i].passages))}
    shown -= partly
    excluded = shown | _removed_rows(whole, rows)
    candidates = [index for index in range(len(rows)) if index not in excluded]
    if not candidates:
        return RecalledRows()
    rows, scores = choose_passages(rows, request.rank, partly)
    # of rows with equal scores the newer comes first: sorting keeps this order
    newest_first = candidates[::-1]
    ranked = sorted(newest_first, key=scores.__getitem__, reverse=True)
    shown_keys = {make_key(rows[index]) for index in shown}
    room -= fixed_tokens(request.rows, count)
    selection = select_rows(rows, ranked, shown_keys, room, count)
    selected, tag = selection.selected, request.rows.tag
    called = _find_called(rows, selected)

    def decide_on_present(index: int) -> tuple[Decision, ...]:
        row, score = rows[index], round(scores[index], 2)
        if index in selected:
            return decide_on_entry(row, tag, "recalled", selection.tokens[index], score)
        return (Decision(list_ids(row.messages), tag, "annotated", "call_only", score=score),)

    def decide() -> list[Decision]:
        tokens = dict(selection.tokens)
        uncounted = [index for index in ranked if index not in tokens] if request.explain else []
        tokens |= {index: entry_tokens(rows[index], count) for index in uncounted[:MAX_EXPLAINED]}
        distinct = [index for index in ranked if index not in selection.repeated]
        reasons = explain_ranking(distinct, selected, selection.too_long)
        decisions: list[Decision] = []
        for index in candidates:
            if index in selected or index in called:
                decisions += decide_on_present(index)
                continue
            ids, score = list_ids(rows[index].messages), round(scores[index], 2)
            reason = reasons.get(index, "repeated")
            decisions.append(Decision(ids, whole.tag, "dropped", reason, tokens.get(index), score))
        return decisions

    in_order = sorted(selected)
    entries = insert_day_lines([rows[index] for index in in_order])
    return RecalledRows(
        sent=replace(request.rows, entries=entries) if selected else None,
        candidates=[rows[index] for index in candidates],
        present=[
            decision
            for index in (*in_order, *sorted(called.difference(excluded, selected)))
            for decision in decide_on_present(index)
        ],
        decide=decide,
    )


def _continues(form: Entry) -> bool:
    """Return whether a form of a row shows another part than its beginning."""
    return form.passage is not None and form.passage.continues


def _removed_rows(whole: Block, rows: Sequence[Entry]) -> set[int]:
    """Return the rows that repair has removed from native history, by their indices."""
    removed_ids = {
        id_
        for omission in whole.omissions
        if omission.reason != BEYOND_LIMIT
        for id_ in omission.message_ids
    }
    if not removed_ids:
        return set()
    return {
        index
        for index, row in enumerate(rows)
        for message in row.messages
        # results may go with a row that doesn't print them
        if message.id in removed_ids and message.role is row.messages[0].role
    }


def _find_called(rows: Sequence[Entry], selected: Set[int]) -> set[int]:
    """Return the tool results whose call is in a selected row, which precedes them."""
    called: set[int] = set()
    for index in selected:
        if rows[index].messages[0].role is not Role.TOOL:
            later = range(index + 1, len(rows))
            called.update(takewhile(lambda i: rows[i].messages[0].role is Role.TOOL, later))
    return called


def choose_passages(
    rows: Sequence[Entry], rank: RankRows, partly: Set[int] = frozenset()
) -> tuple[tuple[Entry, ...], Sequence[float]]:
    """Score rows, each by its best passage, and return each in the form that shows it.

    ``partly`` has the indices of rows whose beginning is shown already.
    """
    if not any(row.passages for row in rows):
        return tuple(rows), rank([row.passage for row in rows if row.passage])
    forms = [row.passages or (row,) for row in rows]
    scores = iter(rank([each.passage for row in forms for each in row if each.passage]))
    scored = [[*zip(row, scores, strict=False)] for row in forms]
    for index in partly:
        scored[index] = [pair for pair in scored[index] if _continues(pair[0])]
    best = [max(row, key=itemgetter(1)) for row in scored]
    return tuple([row for row, _ in best]), [score for _, score in best]


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows that fit together, by their indices, and why others weren't selected."""

    selected: set[int] = field(default_factory=set)
    #: Those that repeat another row that is shown.
    repeated: set[int] = field(default_factory=set)
    #: Those that don't fit even alone.
    too_long: set[int] = field(default_factory=set)
    #: The tokens of each row that was counted, at most, without a line for its day.
    tokens: dict[int, int] = field(default_factory=dict)


def select_rows(
    rows: Sequence[Entry],
    ranked: Iterable[int],
    shown_keys: Set[tuple[Role | None, str]],
    room: int,
    count: Count,
) -> RowSelection:
    """Select rows that fit together into ``room`` tokens, the first of ``ranked`` first.

    ``ranked`` has indices of rows, ``shown_keys`` those of rows that are shown anyway.
    """
    known_keys = set(shown_keys)
    # runs of rows of one day, each of which needs a line for its day, at most: if no row between
    # two runs of a day is selected, one line is enough for both
    sections = [*accumulate((one.day != other.day for one, other in pairwise(rows)), initial=0)]
    opened: set[int] = set()
    selection, remaining, misses = RowSelection(), room, 0
    for index in ranked:
        if misses == MAX_MISSES:
            break
        row, section = rows[index], sections[index]
        key = make_key(row)
        if key in known_keys:
            selection.repeated.add(index)
            continue
        if len(row.text) > remaining * CHARS_PER_TOKEN:
            if len(row.text) > room * CHARS_PER_TOKEN:
                selection.too_long.add(index)
            misses += 1
            continue
        # the most that it can cost in any position
        tokens = max(entry_tokens(row, count), last_tokens(row, count))
        selection.tokens[index] = tokens
        heading = 0 if section in opened else entry_tokens(make_day_line(row.day), count)
        if tokens + heading > remaining:
            if tokens + heading > room:
                selection.too_long.add(index)
            misses += 1
            continue
        misses = 0
        remaining -= tokens + heading
        selection.selected.add(index)
        opened.add(section)
        known_keys.add(key)
    return selection


def make_key(row: Entry) -> tuple[Role | None, str]:
    """Return what rows that say the same have in common: the speaker, and the text without case."""
    passage = row.passage
    return (passage.speaker, _fold(passage.text)) if passage else (None, _fold(row.text))


@lru_cache(maxsize=4096)  # builds of one history compare the same rows
def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFC", text).casefold().replace(", ", " ")
    return " ".join(folded.split()).rstrip(_ENDINGS) or folded
