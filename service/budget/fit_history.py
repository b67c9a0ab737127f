"""Fit the block of history: the chosen strategy, then a hard cut, then shortening."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from formatters.model import COUNT_MARK, Block, Count, Entry
from formatters.native import clear_result
from prompts.summary import summary_block, summary_entry
from service.budget.counting import (
    MESSAGE_OVERHEAD,
    block_tokens,
    entry_tokens,
    last_tokens,
    message_tokens,
)
from service.budget.decisions import BlockOutcome, Decision, SentEntry
from service.budget.groups import (
    Fit,
    Group,
    GroupDecision,
    Strategy,
    SummaryCandidate,
    apply_strategy,
    cost,
    newest_that_fit,
    reports_minimum,
)


def make_groups(block: Block, count: Count) -> list[Group]:
    """Return a group for each entry."""
    if block.native:
        return [
            _native_group(index, entry, count)._replace(start=_start(block, entry))
            for index, entry in enumerate(block.entries)
        ]
    return [
        Group(
            index,
            count(f"{entry.text}\n"),
            count(entry.text),
            entry.messages,
            entry.rows,
            start=_start(block, entry),
        )
        for index, entry in enumerate(block.entries)
    ]


def fixed_tokens(block: Block, count: Count) -> int:
    """Return what a block costs beside its entries, its number priced as the largest it can be."""
    if block.native:
        return 0
    rows = sum(entry.rows for entry in block.entries)
    return MESSAGE_OVERHEAD + count(block.header.replace(COUNT_MARK, f"count={rows}"))


def clamp(group: Group, room: int) -> Group:
    """Weigh a group that is larger than ``room`` as if it filled it.

    What clearing it saves goes on from there: the excess is taken from the first results.
    """
    excess = left = group.tokens_last - room
    if excess <= 0:
        return group
    savings: dict[str, int] = {}
    for id_, saved in group.savings.items():
        absorbed = min(left, saved)
        savings[id_] = saved - absorbed
        left -= absorbed
    return group._replace(tokens=room, tokens_last=room, savings=savings, excess=excess)


def clear_results(entry: Entry, ids: frozenset[str]) -> Entry:
    """Return the entry with the tool results of these rows cleared."""
    if not ids:
        return entry
    places = {entry.results[id_] for id_ in ids}
    native = tuple(
        clear_result(message) if place in places else message
        for place, message in enumerate(entry.native)
    )
    results = {id_: place for id_, place in entry.results.items() if place not in places}
    shorten = partial(_shorter, entry.shorten, ids) if entry.shorten else None
    return replace(entry, native=native, results=results, shorten=shorten)


def _shorter(shorten: Callable[[int], Entry], ids: frozenset[str], chars: int) -> Entry:
    return clear_results(shorten(chars), ids)


def _start(block: Block, entry: Entry) -> int | None:
    return block.starts.get(entry.messages[0].id) if entry.messages else None


def _native_group(index: int, entry: Entry, count: Count) -> Group:
    tokens = entry_tokens(entry, count)
    return Group(
        index=index,
        tokens=tokens,
        tokens_last=tokens,
        messages=entry.messages,
        size=entry.rows,
        savings=_savings(entry, count),
    )


def _savings(entry: Entry, count: Count) -> Mapping[str, int]:
    results = {id_: entry.native[place] for id_, place in entry.results.items()}
    saved = {
        id_: message_tokens(message, count) - message_tokens(clear_result(message), count)
        for id_, message in results.items()
    }
    return {id_: tokens for id_, tokens in saved.items() if tokens > 0}


#: Characters a message below which a shortened turn says nothing any more.
LEAST_CHARS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedHistory:
    """The block of history as it is sent, and what became of every candidate."""

    block: Block
    outcome: BlockOutcome
    #: True where the strategy kept more than the budget holds.
    insufficient: bool = False
    #: Stands before native history for what was left out.
    summary: Block | None = None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate."""
        return self.outcome.decisions

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks that are sent."""
        return (self.summary, self.block) if self.summary else (self.block,)


def fit_history(
    block: Block, strategy: Strategy, budget: int | None, count: Count
) -> FittedHistory:
    """Choose entries so that the block costs at most ``budget`` tokens; None is no limit.

    A turn that is larger than the whole block is weighed as if it filled it; once it is chosen, it
    stands alone and is shortened. One that no shortening makes fit makes way for the others.
    """
    groups = make_groups(block, count)
    if budget is None or not groups:
        largest = max((group.tokens_last for group in groups), default=0)
        return _Fitting(block, groups, largest, count).fitted(Fit(kept=tuple(groups)), dict)
    fixed = fixed_tokens(block, count)
    fitting = _Fitting(block, groups, budget - fixed, count)
    choice, fit = fitting.chosen(strategy)
    # beside summaries, more tokens may bring back another one instead of a group
    least = dict if block.forms else partial(_least, strategy, groups, fixed)
    fitted = fitting.fitted(fit, least)
    return replace(fitted, insufficient=True) if len(fit.kept) < len(choice.kept) else fitted


def placeholder_only(block: Block) -> Block:
    """Return the block with nothing but its placeholder."""
    if not block.entries:
        return block
    return replace(block, entries=(), placeholder=block.placeholder_when_cut)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """One history on its way into so many tokens."""

    block: Block
    groups: Sequence[Group]
    #: Tokens for entries.
    room: int
    count: Count

    def chosen(self, strategy: Strategy) -> tuple[Fit, Fit]:
        """Return what the strategy chose, and what of it is sent."""
        weighed = [clamp(group, self.room) for group in self.groups]
        candidates = self._stand_ins()
        choice = apply_strategy(strategy, weighed, self.room, candidates)
        fit = self._cut(choice)
        if all(map(self._has_form, fit.kept)):
            return choice, fit
        hopeless = {g.index: GroupDecision("too_large") for g in weighed if not self._has_form(g)}
        hopeful = [g for g in weighed if g.index not in hopeless]
        choice = apply_strategy(strategy, hopeful, self.room, candidates)
        fit = self._cut(choice)
        return choice, replace(fit, decisions={**fit.decisions, **hopeless})

    def fitted(self, fit: Fit, least: Callable[[], Mapping[int, int]]) -> FittedHistory:
        """Put the chosen entries together, each as a whole or in its shortened text."""
        shown = {group.index: each for group in fit.kept if (each := self._shown(group))}
        entries = tuple(each.entry for each in shown.values())
        whole = all(each.whole for each in shown.values())
        cut = len(shown) < len(self.groups) or not whole
        block = replace(
            self.block if entries else placeholder_only(self.block),
            entries=entries,
            moves=(cut or self.block.moves) and not (fit.stable_prefix and whole),
        )
        fates = BlockOutcome(self.block, self.groups, shown, fit, least)
        summary = self._summary(fit, shown)
        if summary is None:
            return FittedHistory(block=block, outcome=fates)
        if block.native:
            return FittedHistory(block=block, outcome=fates, summary=summary)
        entries = (*summary.entries, *entries)
        return FittedHistory(block=replace(block, entries=entries), outcome=fates)

    def _summary(self, fit: Fit, shown: Mapping[int, SentEntry]) -> Block | None:
        """Return what stands for the groups that are not shown."""
        if fit.stored_summary:
            return summary_block(fit.stored_summary.form.entry)
        if fit.summary is None or len(shown) == len(self.groups):
            return None
        left = [group for group in self.groups if group.index not in shown]
        entry = summary_entry(fit.summary(left), self.block.tags)
        return summary_block(entry, volatile=True)

    def _stand_ins(self) -> list[SummaryCandidate]:
        return [SummaryCandidate(self._price(form.entry), form) for form in self.block.forms]

    def _price(self, summary: Entry) -> int:
        """Return what a summary costs before the entries, or as a message of its own."""
        if self.block.native:
            return block_tokens(summary_block(summary), self.count)
        return entry_tokens(summary, self.count)

    def _cut(self, choice: Fit) -> Fit:
        """Cut what a strategy left over the budget: here no group is protected.

        A summary goes first where it does not fit, or leaves no room for any chosen group.
        """
        weights = [self._weight(group) for group in choice.kept]
        summarized = choice.summary is not None or choice.stored_summary is not None
        if not summarized and cost(weights) <= self.room:
            return choice
        room = self.room - self._summary_tokens(choice)
        kept = self._newest(weights, room)
        if summarized and (room < 0 or (weights and not kept)):
            choice = replace(choice, summary=None, stored_summary=None)
            kept = self._newest(weights, self.room)
        left = {group.index for group in kept}
        cut = {g.index: GroupDecision("insufficient") for g in choice.kept if g.index not in left}
        return replace(
            choice,
            kept=tuple(group for group in choice.kept if group.index in left),
            decisions={**choice.decisions, **cut},
            stable_prefix=choice.stable_prefix and not cut,
        )

    def _newest(self, groups: Sequence[Group], room: int) -> Sequence[Group]:
        return groups if cost(groups) <= room else newest_that_fit(groups, room)

    def _weight(self, group: Group) -> Group:
        """Weigh a chosen group by what it costs as it was left, or as filling the room."""
        return clamp(self.groups[group.index].without_results(group.cleared), self.room)

    def _summary_tokens(self, choice: Fit) -> int:
        """Price the summary by the largest numbers that can stand in it."""
        if choice.stored_summary:
            return choice.stored_summary.tokens
        if choice.summary is None:
            return 0
        return self._price(summary_entry(choice.summary(self.groups), self.block.tags))

    def _has_form(self, group: Group) -> bool:
        """Tell whether a group fits as it was left, or shortened."""
        whole = self.groups[group.index]
        return whole.tokens_last <= self.room or self._shown(group) is not None

    def _shown(self, group: Group) -> SentEntry | None:
        """Return the entry of a group as it is sent; None where no shortening makes it fit."""
        whole = self.groups[group.index].without_results(group.cleared)
        entry = clear_results(self.block.entries[group.index], group.cleared)
        if whole.tokens_last <= self.room:
            return SentEntry(entry, whole.tokens, cleared=group.cleared)
        return self._shortened(entry, group.cleared)

    def _shortened(self, entry: Entry, cleared: frozenset[str]) -> SentEntry | None:
        """Return the entry with as many characters a message as fit."""
        if entry.shorten is None or self.room <= 0:
            return None
        best = None
        low, high = LEAST_CHARS, max(entry.longest, LEAST_CHARS)
        while low <= high:
            # the least first: where that does not fit, nothing does
            middle = (low + high) // 2 if best else low
            shorter = entry.shorten(middle)
            tokens = last_tokens(shorter, self.count)
            if tokens <= self.room:
                best, low = SentEntry(shorter, tokens, shortened=True, cleared=cleared), middle + 1
            else:
                high = middle - 1
        return best


def _least(strategy: Strategy, groups: Sequence[Group], fixed: int) -> dict[int, int]:
    """Return the least budgets of groups, in tokens for the block."""
    told = strategy.least(groups) if reports_minimum(strategy) else {}
    return {index: tokens + fixed for index, tokens in told.items()}
