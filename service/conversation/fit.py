"""Choose which of a caller's own messages fit into a budget, and decide on each of them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from operator import is_
from typing import NamedTuple

from formatters.model import Count, Role, Row
from formatters.repair.sequence import repair
from service.budget.decisions import Outcome, explain_reason
from service.budget.groups import Fit, Group, Strategy, cost, explain_ranking
from service.conversation.checks import (
    check_each_call,
    check_message,
    check_not_mapping,
    check_readable,
)
from service.conversation.protection import (
    drop_excess,
    explain_unopened,
    open_answers,
    pin_opener,
    protected_indexes,
    refill,
)
from service.conversation.sending import row_tokens
from service.conversation.shapes import in_chat_form
from service.conversation.strategies import fit_pinned
from service.conversation.units import (
    Item,
    RowCost,
    Unit,
    Units,
    awaits_results,
    dropped_groups,
    read_units,
)
from service.errors import BudgetExceededError


class MessageDecision(NamedTuple):
    """The outcome of one of the messages that were given."""

    #: Its position in the list, from 0.
    index: int  # type: ignore[assignment] # hides tuple.index, which is unused
    outcome: Outcome
    #: A code of `service.budget.decisions.REASONS`, or one of the strategy's own.
    reason: str
    #: Its tokens as it was given.
    tokens: int
    score: float | None = None

    @property
    def detail(self) -> str:
        """Return the reason as a sentence."""
        return explain_reason(self.reason)


@dataclass(frozen=True, slots=True)
class FittedRows:
    """The messages that fit, and a decision on each that was given."""

    rows: list[Row]
    tokens: int
    #: In the order of the messages that were given.
    decisions: tuple[MessageDecision, ...]
    #: True if the strategy kept more than the budget holds.
    insufficient: bool


def fit_rows(
    rows: Sequence[Row], strategy: Strategy, budget: int, count: Count, *, spent: int = 0
) -> FittedRows:
    """Return the messages that fit into ``budget`` tokens, with ``spent`` used by tools.

    System messages, the user's newest message and the newest unit are always kept; a call and its
    results are one unit. If the user begins the conversation, the user begins what is kept of it.
    Messages are the objects that were given, unless no API accepts them as they are.

    Raises:
        MessageError: A message can't be read.
        BudgetExceededError: What is always kept exceeds the budget.
    """
    for index, row in enumerate(rows):
        check_message(row, f"messages[{index}]")
        check_not_mapping(row, f"messages[{index}]")
    given, rows = rows, [*map(_read_chat, rows, range(len(rows)))]
    units, known = read_units(rows), dict[int, tuple[Row, int]]()
    for index, row in enumerate(given):  # after what is no call at all was refused
        check_each_call(row, f"messages[{index}]")

    def row_cost(row: Row) -> int:
        """Count each message once; it is kept, so that no other one gets its id."""
        if id(row) not in known:
            known[id(row)] = row, row_tokens(row, count)
        return known[id(row)][1]

    room = budget - spent - sum(map(row_cost, units.rows(())))
    groups = _clear_beside_text(pin_opener(units.groups(row_cost)), room)
    protected = protected_indexes(groups)
    if (excess := _excess(groups, room)) > 0:
        always = units.items(group for group in groups if group.index in protected)
        detail = _describe_excess(always, row_cost, budget, spent)
        raise BudgetExceededError(detail, needed=budget + excess, available=budget)
    fit = fit_pinned(strategy, groups, room)
    within = drop_excess(_cleared_to_save(groups, fit.kept), protected, room)
    kept = open_answers(units, groups, within, room)
    if dropped_groups(within, kept):
        scores = {
            index: own.score
            for index, own in fit.decisions.items()
            if own.score is not None and own.reason in ("score", "no_room")
        }
        kept = refill(units, groups, kept, scores, room)
        fit = _regrade(fit, scores, groups, kept, room)
    fitted = units.rows(kept)
    unopened = explain_unopened(units, groups, dropped_groups(within, kept), kept)
    decide = _Decider(rows, units, fit, within, kept, unopened)
    return FittedRows(
        rows=fitted,
        tokens=sum(map(row_cost, fitted)),
        decisions=tuple(
            _note_form(decide(index, row_cost(row)), is_formed=row is not rows[index])
            for index, row in enumerate(given)
        ),
        insufficient=len(within) < len(fit.kept),
    )


def _read_chat(row: Row, index: int) -> Row:
    """Return a message in its API's form; raises `MessageError` if it can't be read."""
    content, place = row.get("content"), f"messages[{index}]"
    if isinstance(content, str) and row.keys() <= {"role", "content"}:
        return row  # as most are
    if not isinstance(content, str):
        check_readable(row, place)
    formed = in_chat_form(row)
    if formed is not row:
        check_readable(row, place)
    return formed


def _note_form(decision: MessageDecision, *, is_formed: bool) -> MessageDecision:
    """Return the decision on a message that may have changed before it was fitted."""
    if decision.outcome != "kept" or not is_formed:
        return decision
    return decision._replace(outcome="repaired", reason="form_mended")


def _excess(groups: Sequence[Group], room: int) -> int:
    """Return how many tokens more than the room the groups need that are always kept."""
    protected = protected_indexes(groups)
    return cost([group for group in groups if group.index in protected]) - room


def _clear_beside_text(given: Sequence[Group], room: int) -> list[Group]:
    """Clear results beside the user's newest text while what is always kept exceeds the room.

    The oldest go first; the newest unit stays whole.
    """
    groups = list(given)
    excess = _excess(groups, room) if groups else 0
    for at, group in enumerate(groups[:-1]):
        cleared = []
        for id_ in group.savings if group.pinned else ():
            if excess <= 0:
                break
            if (saved := group.savings[id_]) > 0:
                cleared.append(id_)
                excess -= saved
        groups[at] = group.without_results(cleared)
    return groups


def _describe_excess(kept: Sequence[Item], row_cost: RowCost, budget: int, spent: int) -> str:
    """Return by how much what is always kept exceeds a budget, with its parts and a remedy."""
    parts = Counter(tools=spent)
    for item in kept:
        name = " and ".join(f"messages[{at}]" for at in sorted(item.indexes))
        parts[name or "placeholders"] += row_cost(item.row)
    total = parts.total()
    listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.most_common(5) if tokens)
    return (
        f"what is always kept needs {total:,} tokens, {total - budget:,} more than max_tokens:"
        f" {listed}; raise max_tokens to {total:,}, or shorten these"
    )


def _cleared_to_save(groups: Sequence[Group], kept: Sequence[Group]) -> list[Group]:
    """Return the groups that are kept, with those results cleared that cost more than the note."""
    given = {group.index: group for group in groups}
    return [
        given[group.index].without_results([i for i in group.cleared if group.savings[i] > 0])
        for group in kept
    ]


def _regrade(
    fit: Fit, scores: Mapping[int, float], groups: Sequence[Group], kept: Sequence[Group], room: int
) -> Fit:
    """Return a choice with the reasons for what was left out, after `refill` kept other groups."""
    ranked = sorted(scores, key=lambda index: (scores[index], index), reverse=True)
    selected, left = {group.index for group in kept}, room - cost(kept)
    fitting = {group.index for group in groups if group.tokens <= left}
    decisions = dict(fit.decisions)
    for index, reason in explain_ranking(ranked, selected, ()).items():
        own = decisions[index]
        if index in fitting:  # what fits is kept, unless it lacks a message of the user before it
            decisions[index] = own._replace(reason="no_opening")
        elif own.reason == "score":
            decisions[index] = own._replace(reason=reason)
    return replace(fit, decisions=decisions)


class _Decider:
    """Decides on each message, given what was kept of its unit, and why others were not."""

    def __init__(
        self,
        rows: Sequence[Row],
        units: Units,
        fit: Fit,
        within: Sequence[Group],
        kept: Sequence[Group],
        unopened: Mapping[int, str],
    ) -> None:
        self._rows = rows
        self._fit = fit
        self._kept = {group.index: group for group in kept}
        chosen = {group.index for group in fit.kept}
        #: Kept for an answer to them, at any score.
        self._openers = self._kept.keys() - chosen
        self._dropped = {
            **{group.index: "insufficient" for group in dropped_groups(fit.kept, within)},
            **unopened,
        }
        #: The units that have a message, several if its results belong to calls in others.
        self._places: defaultdict[int, list[tuple[int, Unit, Item]]] = defaultdict(list)
        for index, unit in enumerate(units.units):
            for item in unit:
                for position in item.indexes:
                    self._places[position].append((index, unit, item))
        items = units.all_items()
        is_whole = len(items) == len(rows) and all(map(is_, [item.row for item in items], rows))
        self._repairs = {} if is_whole else _repairs(rows)
        self._moved = set() if is_whole else _moved(items)

    def __call__(self, position: int, tokens: int) -> MessageDecision:
        """Return the decision on the message at a position."""
        if position not in self._places:
            reason = self._repairs.get(position, "empty")
            return MessageDecision(position, "filtered", reason, tokens)
        decided = [self._decide(position, tokens, *place) for place in self._places[position]]
        dropped = [each for each in decided if each.outcome == "dropped"]
        if dropped and len(dropped) < len(decided):
            return dropped[0]._replace(outcome="truncated")
        return decided[-1]

    def _decide(
        self, position: int, tokens: int, index: int, unit: Unit, item: Item
    ) -> MessageDecision:
        """Return the decision on what a unit has of a message."""
        own = self._fit.decisions.get(index)
        score = own.score if own and index not in self._openers else None
        group = self._kept.get(index)
        if group is None and not item.is_instruction:
            reason = self._dropped.get(index) or (own.reason if own else "not_chosen")
            return MessageDecision(position, "dropped", reason, tokens, score)
        if group and not group.cleared.isdisjoint(message.id for message in item.messages):
            return MessageDecision(position, "cleared", "result_cleared", tokens, score)
        if repair := self._find_repair(position, unit, item):
            return MessageDecision(position, "repaired", repair, tokens, score)
        return MessageDecision(position, "kept", "fits", tokens, score)

    def _find_repair(self, position: int, unit: Unit, item: Item) -> str | None:
        """Return the reason for a repair of a message that is kept; None if it is as it was."""
        given, reason = self._rows[position], self._repairs.get(position)
        waits = awaits_results(unit)
        if reason == "result_missing" and not waits:
            return reason  # a result follows it, or was added to it
        if item.row is given:
            return "result_moved" if position in self._moved else None
        if reason and reason not in ("empty", "result_missing"):
            return reason
        if len(item.indexes) > 1:  # it is in one message with others, of which one was moved
            return "result_moved"
        _, required = item.shape.as_required(given)
        # otherwise a placeholder may have been added to it
        return required or (_call_change(item) if waits else "result_missing")


def _moved(items: Sequence[Item]) -> set[int]:
    """Return the positions of results that aren't where they were among the other messages.

    Only results are moved. Of results at one place, those that now precede an earlier one are.
    """
    are_results = [all(each.role is Role.TOOL for each in item.messages) for item in items]
    # the positions of the last other message before each item, and of the next one behind it
    spoken = [
        -1 if is_result else max(item.indexes, default=-1)
        for item, is_result in zip(items, are_results, strict=True)
    ]
    preceding = [-1, *accumulate(spoken, max)]
    moved: set[int] = set()
    behind: float = inf
    least: float = inf  # of the results at one place
    for item, is_result, before in reversed([*zip(items, are_results, preceding, strict=False)]):
        if not is_result:
            behind = least = min([*item.indexes, behind])
            continue
        for position in sorted(item.indexes, reverse=True):
            if not before < position < behind or position > least:
                moved.add(position)
            else:
                least = position
    return moved


def _call_change(item: Item) -> str:
    """Return the reason for a change of calls."""
    *_, before = item.shape.read(item.given, item.name)
    for call, now in zip(before.tool_calls, item.messages[-1].tool_calls, strict=False):
        if call.arguments != now.arguments:
            break
        if call.name != now.name:
            return "name_mended"
        if call.id != now.id:
            return "call_renamed"
    return "arguments_mended"


def _repairs(rows: Sequence[Row]) -> dict[int, str]:
    """Return why repair changes messages or leaves them out, by their positions.

    Of a message with several reasons, why a part of it is left out counts first.
    """
    items = (Item.read(row, index) for index, row in enumerate(rows))
    repaired = repair([message for item in items if item.is_dialogue for message in item.messages])
    reasons: dict[int, str] = {}
    lost = [(id_, reason) for id_, reason in repaired.filtered.items() if reason != "empty"]
    for id_, reason in (*lost, *repaired.changed.items(), *repaired.filtered.items()):
        reasons.setdefault(int(id_.partition("/")[0]), reason)
    return reasons
