"""Fit history by relevance: the newest turns, and rows of older ones in a block of their own.

The newest turns are fitted first. The tokens that they leave go to rows of older turns, those with
the highest scores first.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, pairwise
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
from service.budget.decisions import Decision, FittedBlock, Outcome, RecallOutcome
from service.budget.fit_history import fit_history
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import Relevance, recalls

#: Consecutive rows that don't fit, after which no more are tried.
MAX_MISSES: Final = 100
#: Characters that a token rarely has; a row with more of them per remaining token isn't counted.
CHARS_PER_TOKEN: Final = 12

_NEWEST: Final = OldestFirst()
_WORD: Final = re.compile(r"[^\W_]+")

#: Score the rows that may be recalled by their relevance to the current input.
RankRows = Callable[[Sequence[Passage]], Sequence[float]]


def make_ranker(strategy: object, question: str, now: datetime | None) -> RankRows | None:
    """Return how a strategy scores rows for this question; None if it recalls none."""
    ranker = strategy.rank if recalls(strategy) else None
    return (lambda passages: ranker(question, passages, now)) if ranker else None


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The rows that may be recalled, and how to choose among them."""

    #: A block with an entry for each row of the history, in order.
    rows: Block
    strategy: Relevance
    rank: RankRows


def fit_recall(block: Block, request: RecallRequest, room: int, count: Count) -> FittedBlock:
    """Share ``room`` tokens between the newest turns and rows of older ones.

    If all of history fits, it is shown as with any strategy and nothing is recalled.
    """
    entries = _newest_entries(block, room - fixed_tokens(block, count), count)
    has_older_rows = any(omission.reason == BEYOND_LIMIT for omission in block.omissions)
    # older rows that were not read would move the start of the block in the next build
    has_moving_start = block.moves and request.strategy.stable_prefix
    if len(entries) == len(block.entries) and not (has_older_rows or has_moving_start):
        return fit_history(block, _NEWEST, room, count)
    newest_turns = _recent_turns(replace(block, entries=entries), request.strategy, room, count)
    fitted = fit_history(newest_turns, _NEWEST, room, count)
    remaining = room - block_tokens(fitted.block, count)
    row_decisions, recalled = _recall(block, fitted.block, request, remaining, count)
    recall = RecallOutcome(block, fitted.outcome, row_decisions, recalled)
    return replace(fitted, recall=recall)


def _newest_entries(block: Block, room: int, count: Count) -> tuple[Entry, ...]:
    """Return the newest entries that fit, at least one, without counting the older ones."""
    used = 0
    for taken, entry in enumerate(reversed(block.entries)):
        used += entry_tokens(entry, count) if taken else last_tokens(entry, count)
        if used > room:
            return block.entries[-max(taken, 1) :]
    return block.entries


def _recent_turns(block: Block, strategy: Relevance, room: int, count: Count) -> Block:
    """Return the block with the newest turns that the strategy always shows."""
    recent = strategy.recent(make_groups(block, count), room - fixed_tokens(block, count))
    entries = tuple(block.entries[group.index] for group in recent.kept)
    return replace(block, entries=entries, moves=not recent.stable_prefix)


def _recall(
    whole: Block, newest: Block, request: RecallRequest, room: int, count: Count
) -> tuple[list[Decision], Block | None]:
    """Recall the rows with the highest scores; return the decision on each, and the block.

    Rows of the newest turns, and those that repair has removed from native history, are excluded.
    """
    rows = request.rows.entries
    shown_ids = {message.id for entry in newest.entries for message in entry.messages}
    removed_ids = {
        id_
        for omission in whole.omissions
        if omission.reason != BEYOND_LIMIT
        for id_ in omission.message_ids
    }
    shown = {index for index, row in enumerate(rows) if _shows_any(row, shown_ids)}
    candidates = [
        index
        for index, row in enumerate(rows)
        if index not in shown and not _prints_any(row, removed_ids)
    ]
    if not candidates:
        return [], None
    scores = request.rank([row.passage for row in rows if row.passage])
    # of rows with equal scores the newer comes first
    ranked = sorted(candidates, key=lambda index: (scores[index], index), reverse=True)
    shown_texts = {normalize_words(rows[index]) for index in shown}
    room -= fixed_tokens(request.rows, count)
    selected, repeated = select_rows(rows, ranked, shown_texts, room, count)

    def decide(index: int) -> Decision:
        ids = tuple(message.id for message in rows[index].messages)
        score = round(scores[index], 2)
        if index in selected:
            outcome: Outcome = "truncated" if rows[index].cut else "kept"
            tokens = selected[index]
            return Decision(ids, request.rows.tag, outcome, "recalled", tokens, score)
        reason = "repeated" if index in repeated else "score"
        return Decision(ids, whole.tag, "dropped", reason, score=score)

    entries = insert_day_lines([rows[index] for index in sorted(selected)])
    recalled = replace(request.rows, entries=entries) if selected else None
    return [decide(index) for index in candidates], recalled


def _shows_any(row: Entry, ids: Set[str]) -> bool:
    return any(message.id in ids for message in row.messages)


def _prints_any(row: Entry, ids: Set[str]) -> bool:
    """Return whether a row prints one of these messages; it doesn't print tool results."""
    return any(message.id in ids for message in row.messages if message.role is not Role.TOOL)


# --- selecting rows --------------------------------------------------------------------------


def select_rows(
    rows: Sequence[Entry], ranked: Iterable[int], shown_texts: Set[str], room: int, count: Count
) -> tuple[dict[int, int], set[int]]:
    """Select rows that fit together into ``room`` tokens, the first of ``ranked`` first.

    ``ranked`` has indices of rows, ``shown_texts`` the words of rows that are shown anyway. Returns
    the tokens of each selected row by its index, and the indices of rows that repeat others.
    """
    known_texts = set(shown_texts)
    sections = _number_sections(rows)
    opened: set[int] = set()
    selected: dict[int, int] = {}
    repeated: set[int] = set()
    misses = 0
    for index in ranked:
        if misses == MAX_MISSES:
            break
        row, section = rows[index], sections[index]
        text = normalize_words(row)
        if text in known_texts:
            repeated.add(index)
            continue
        tokens = _row_tokens(row, room, count)
        heading = 0 if section in opened else entry_tokens(make_day_line(row.day), count)
        if tokens + heading > room:
            misses += 1
            continue
        misses = 0
        room -= tokens + heading
        selected[index] = tokens
        opened.add(section)
        known_texts.add(text)
    return selected, repeated


def normalize_words(row: Entry) -> str:
    """Return the words of a row in lower case, without what is between them."""
    text = row.passage.text if row.passage else row.text
    return " ".join(_WORD.findall(text.casefold())) or text


def _number_sections(rows: Sequence[Entry]) -> list[int]:
    """Number the runs of rows of the same day, each of which needs a line for its day.

    If none of the rows between two runs of a day is selected, one line is enough for both.
    """
    changes = (int(one.day != other.day) for one, other in pairwise(rows))
    return list(accumulate(changes, initial=0))


def _row_tokens(row: Entry, room: int, count: Count) -> int:
    """Return the most that a row can cost in any position, or more than ``room``."""
    if len(row.text) > room * CHARS_PER_TOKEN:
        return room + 1
    return max(entry_tokens(row, count), last_tokens(row, count))
