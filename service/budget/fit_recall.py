"""Fit history by relevance: the newest turns, and rows of older ones in a block of their own.

The newest turns are fitted first. The tokens that they leave go to rows of older turns, those with
the highest scores first.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, filterfalse
from typing import Final

from formatters.model import BEYOND_LIMIT, OLDER, RECALLABLE, Block, Count, Entry, Role
from formatters.recalled import insert_day_lines
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
from service.budget.fit_history import fit_history, shorten
from service.budget.select_rows import (
    RankRows,
    continues,
    fold,
    fold_row,
    make_key,
    make_narrower,
    score_forms,
    select_rows,
)
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import WHOLE_TURN_SHARE, Relevance

#: The most rows that are counted for the decisions on them alone.
MAX_EXPLAINED: Final = 1_000

#: If all of history fits, but not what its turns cut, the least share of its tokens that has to be
#: left for that; with less, only the newest turns are shown, and the rest may be recalled.
LEAST_FOR_PARTS: Final = 0.25
#: The least tokens of a narrow passage in a block of its own, about.
TOKENS_FOR_PART: Final = 130
#: The tokens that recalled rows have beside a long newest turn, whose messages are cut: about those
#: of two passages, or what this share leaves, if that is less. See bench/recall/README.md.
TOKENS_BESIDE_TURN: Final = 330
CUT_TURN_SHARE: Final = 1 / 3
#: About as many characters as a token has.
CHARS_PER_TOKEN: Final = 4

_NEWEST: Final = OldestFirst()


@dataclass(frozen=True, slots=True)
class RecallInput:
    """The rows that may be recalled, and how to choose among them."""

    #: A block with an entry for each row of the history, in order.
    rows: Block
    strategy: Relevance
    rank: RankRows
    #: What the human says now, which another block shows.
    question: str = ""
    #: Whether rows that aren't recalled are counted, too.
    explain: bool = False


def fit_recall(block: Block, request: RecallInput, room: int, count: Count) -> FittedBlock:
    """Share ``room`` tokens between the newest turns and rows of older ones.

    If all of history fits, it is shown as with any strategy, and only what that cuts is recalled.
    """
    entries = _newest_entries(block, room - fixed_tokens(block, count), count)
    reasons = {omission.reason for omission in block.omissions}
    # older rows that were not read would move the start of the block in the next build
    has_moving_start = block.moves and request.strategy.stable_prefix
    fits = len(entries) == len(block.entries) and not has_moving_start
    if fits and OLDER in reasons and BEYOND_LIMIT not in reasons:
        # what a search found is only recalled; beside all turns, if there is room for all of it
        chars = sum([len(row.text) for row in request.rows.entries])
        if chars // CHARS_PER_TOKEN <= room:
            fitted = fit_history(block, _NEWEST, room, count)
            return _with_recalled(block, fitted, request, room, count)
    if fits and reasons.isdisjoint(RECALLABLE):
        fitted = fit_history(block, _NEWEST, room, count)
        hidden = 0 if block.native else _estimate_hidden(block, request.rows)
        if not hidden:
            return fitted
        share = max(room * LEAST_FOR_PARTS, TOKENS_FOR_PART)
        least = 0 if request.strategy.stable_prefix else min(hidden, share)
        if room - block_tokens(fitted.block, count) >= least:
            return _with_recalled(block, fitted, request, room, count)
    newest = replace(block, entries=entries)
    tokens = room - fixed_tokens(newest, count)
    recent = request.strategy.recent(make_groups(newest, count), tokens)
    shown = tuple(entries[group.index] for group in recent.kept)
    newest_turns = replace(block, entries=shown, moves=not recent.stable_prefix)

    def fit(*turns: Entry) -> FittedBlock:
        fitted = fit_history(replace(newest_turns, entries=turns), _NEWEST, room, count)
        return _with_recalled(block, fitted, request, room, count)

    if len(shown) != 1 or request.strategy.stable_prefix:
        return fit(*shown)
    turn = _latest_that_fit(shown[0], int(tokens * WHOLE_TURN_SHARE), count)
    cut = None if block.native else _cut(turn, tokens, count)
    return _fit_cut(turn, cut, fit, tokens, count) if cut else fit(turn)


def _estimate_hidden(block: Block, rows: Block) -> int:
    """Return about how many tokens the parts of rows have that turns don't show."""
    results = set[str]().union(*map(_hidden_results, block.entries))
    chars = 0
    for row in rows.entries:
        forms = row.passages or (row,)
        if row.messages[0].id not in results:
            forms = tuple(filter(continues, forms))
        chars += sum([len(form.text) for form in forms])
    return -(-chars // CHARS_PER_TOKEN)


def _with_recalled(
    block: Block, fitted: FittedBlock, request: RecallInput, room: int, count: Count
) -> FittedBlock:
    """Return the newest turns with the rows that are recalled into the room that they leave."""
    remaining = room - block_tokens(fitted.block, count)
    rows = recall_rows(block, fitted.block, request, remaining, count)
    return replace(fitted, recall=RecallOutcome(block, fitted, rows))


def _hidden_results(entry: Entry) -> set[str]:
    """Return the ids of the tool results of which a turn shows the call only."""
    hidden = (m.id for m in entry.messages if m.role is Role.TOOL and m.content.strip())
    return {id_ for id_ in hidden if entry.reasons.get(id_) == "call_only"}


def _fit_cut(
    turn: Entry, cut: Entry, fit: Callable[[Entry], FittedBlock], tokens: int, count: Count
) -> FittedBlock:
    """Return the newest turn, cut only as far as the rows need it that are recalled beside it."""
    least = fit(cut)
    rows = least.recall.rows if least.recall else RecalledRows()
    # rows are selected by the most tokens that each can have: about one more than it has here
    recalled = block_tokens(rows.sent, count) + len(rows.sent.entries) if rows.sent else 0
    longer = _limit(turn, tokens - recalled, count) or cut
    fitted = fit(longer)
    kept = fitted.recall.rows.recalled if fitted.recall else frozenset()
    return fitted if longer is turn or rows.recalled <= kept else least


def _cut(turn: Entry, tokens: int, count: Count) -> Entry | None:
    """Return the newest turn with its long messages cut, to leave tokens for rows that match.

    None if it takes at most half of the tokens, leaves enough anyway, or can't be cut so far.
    """
    most = max(int(tokens * CUT_TURN_SHARE), tokens - TOKENS_BESIDE_TURN)
    if last_tokens(turn, count) <= max(int(tokens * WHOLE_TURN_SHARE), most):
        return None
    return _limit(turn, most, count)


def _limit(turn: Entry, room: int, count: Count) -> Entry | None:
    """Return a turn that fits, whole or with its long messages cut; None if it can't be cut."""
    if last_tokens(turn, count) <= room:
        return turn
    cut = shorten(turn, room, count)
    return cut.entry if cut else None


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
    whole: Block, newest: Block, request: RecallInput, room: int, count: Count
) -> RecalledRows:
    """Recall the rows with the highest scores.

    What the newest turns show, and what repair has removed from native history, is excluded.
    """
    rows = request.rows.entries
    shown, partly = _find_shown(newest, rows)
    excluded = shown | _removed_rows(whole, rows)
    candidates = [index for index in range(len(rows)) if index not in excluded]
    if not candidates:
        return RecalledRows()
    forms = score_forms(rows, request.rank)
    ranked = forms.rank(excluded, partly)
    room -= fixed_tokens(request.rows, count)
    keys = _list_keys(rows, shown | _find_asked(request.question, rows), partly)
    narrower = make_narrower(rows, request.rank, lambda: newest.text)
    selection = select_rows(forms, ranked, keys, room, count, narrower)
    selected, tag = selection.shown, request.rows.tag
    called, best = _find_called(rows, selected.keys()), forms.find_best(ranked)

    def score_of(index: int) -> float:
        return round(forms.scores[best[index]], 2)

    def decide_on_present(index: int, score: float | None) -> tuple[Decision, ...]:
        if index in selected:
            tokens = selection.tokens[index]
            return decide_on_entry(selected[index], tag, "recalled", tokens, score)
        ids = list_ids(rows[index].messages)
        return (Decision(ids, tag, "annotated", "call_only", score=score),)

    def decide() -> list[Decision]:
        tokens = selection.list_tokens(MAX_EXPLAINED if request.explain else 0)
        reasons = selection.explain()
        decisions: list[Decision] = []
        for index in candidates:
            if index in selected or index in called:
                decisions += decide_on_present(index, score_of(index))
                continue
            ids, score, reason = list_ids(rows[index].messages), score_of(index), reasons[index]
            decisions.append(Decision(ids, whole.tag, "dropped", reason, tokens.get(index), score))
        return decisions

    in_order = sorted(selected)
    entries = insert_day_lines([selected[index] for index in in_order])
    return RecalledRows(
        sent=replace(request.rows, entries=entries) if selected else None,
        present=[
            decision
            for index in (*in_order, *sorted(called.difference(excluded, selected)))
            for decision in decide_on_present(index, None)
        ],
        decide=decide,
    )


def _find_shown(newest: Block, rows: Sequence[Entry]) -> tuple[set[int], set[int]]:
    """Return the rows that the newest turns show, by their indices.

    The second set has those that they show in part, of which another part may be recalled. Those
    that were cut for the budget are in neither: they may be recalled as a whole.
    """
    shown_ids = {
        message.id
        for entry in newest.entries
        for message in entry.messages
        if entry.reasons.get(message.id) != "shortened"
    }
    shown_ids = shown_ids.difference(*map(_hidden_results, newest.entries))
    shown = {i for i, row in enumerate(rows) for message in row.messages if message.id in shown_ids}
    partly = {i for i in shown if not newest.native and any(map(continues, rows[i].passages))}
    return shown - partly, partly


def _find_asked(question: str, rows: Sequence[Entry]) -> set[int]:
    """Return the rows in which the human said what is the question now, by their indices."""
    wanted, human, chars = fold(question), Role.HUMAN, len(question)
    return {
        index
        for index, row in enumerate(rows)
        if (message := row.messages[0]).role is human
        # most texts are much shorter or longer
        if chars // 2 <= len(message.content) <= 2 * chars
        if fold_row(message.content) == wanted
    }


def _list_keys(
    rows: Sequence[Entry], shown: Set[int], partly: Set[int]
) -> set[tuple[Role | None, str]]:
    """Return what rows that are shown say in all their forms, or at their beginning."""
    forms = chain.from_iterable(rows[index].passages or (rows[index],) for index in shown)
    beginnings = chain.from_iterable(rows[index].passages for index in partly)
    return {make_key(form) for form in (*forms, *filterfalse(continues, beginnings))}


def _removed_rows(whole: Block, rows: Sequence[Entry]) -> set[int]:
    """Return the rows that repair has removed from native history, by their indices."""
    removed_ids = {
        id_
        for omission in whole.omissions
        if omission.reason not in RECALLABLE
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
    tool = Role.TOOL  # looked up once
    for index in selected:
        if rows[index].messages[0].role is not tool:
            later = index + 1
            while later < len(rows) and rows[later].messages[0].role is tool:
                called.add(later)
                later += 1
    return called
