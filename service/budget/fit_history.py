"""Fit history: the strategy chooses turns, the oldest of too many go, too large ones are shortened.

Turns are the groups of the block, one for each entry; native history has units of calls and results
in their place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from formatters.model import Block, Count, Entry
from formatters.native import clear_result
from prompts.summary import format_summary_entry, summary_block
from service.budget.counting import (
    block_tokens,
    entry_tokens,
    fixed_tokens,
    last_tokens,
    make_groups,
)
from service.budget.decisions import BlockOutcome, FittedBlock, SentEntry
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

#: Characters per message below which a shortened turn has no meaning left.
MIN_CHARS: Final = 20


def fit_history(block: Block, strategy: Strategy, budget: int | None, count: Count) -> FittedBlock:
    """Choose entries so that the block costs at most ``budget`` tokens; None is no limit.

    The strategy sees a turn that is larger than the whole budget as one that uses all of it. If
    that is chosen, it is sent alone and shortened. A turn that can't be shortened enough is dropped
    in favour of the others.
    """
    groups = make_groups(block, count)
    if budget is None or not groups:
        largest = max((group.tokens_last for group in groups), default=0)
        return _Fitting(block, groups, largest, count).assemble(Fit(kept=tuple(groups)), dict)
    fixed = fixed_tokens(block, count)
    fitting = _Fitting(block, groups, budget - fixed, count)
    choice, fit = fitting.choose(strategy)
    # with summaries, a larger budget may bring back another summary instead of a group
    minimum_budgets = dict if block.forms else partial(_minimum_budgets, strategy, groups, fixed)
    fitted = fitting.assemble(fit, minimum_budgets)
    return replace(fitted, insufficient=len(fit.kept) < len(choice.kept))


def placeholder_only(block: Block) -> Block:
    """Return the block with its placeholder in place of its entries."""
    if not block.entries:
        return block
    return replace(block, entries=(), placeholder=block.placeholder_when_cut)


def clear_results(entry: Entry, ids: frozenset[str]) -> Entry:
    """Return the entry with the tool results of these rows cleared."""
    if not ids:
        return entry
    indices = {entry.results[id_] for id_ in ids}
    native = tuple(
        clear_result(message) if index in indices else message
        for index, message in enumerate(entry.native)
    )
    results = {id_: index for id_, index in entry.results.items() if index not in indices}
    shorten = partial(_shorten_cleared, entry.shorten, ids) if entry.shorten else None
    return replace(entry, native=native, results=results, shorten=shorten)


def _shorten_cleared(shorten: Callable[[int], Entry], ids: frozenset[str], chars: int) -> Entry:
    return clear_results(shorten(chars), ids)


def _minimum_budgets(strategy: Strategy, groups: Sequence[Group], fixed: int) -> dict[int, int]:
    """Return the smallest tokens of the whole block that would keep each group."""
    reported = strategy.least(groups) if reports_minimum(strategy) else {}
    return {index: tokens + fixed for index, tokens in reported.items()}


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A block of history, and the tokens that its entries may use."""

    block: Block
    groups: Sequence[Group]
    room: int
    count: Count

    def choose(self, strategy: Strategy) -> tuple[Fit, Fit]:
        """Return the strategy's choice, and what of it fits.

        If a chosen group can't be sent in any form, the strategy chooses again without all such.
        """
        groups = [group.limited_to(self.room) for group in self.groups]
        candidates = [SummaryCandidate(self._cost_of(f.entry), f) for f in self.block.forms]
        choice = apply_strategy(strategy, groups, self.room, candidates)
        fit = self._enforce_room(choice)
        if all(map(self._can_be_sent, fit.kept)):
            return choice, fit
        too_large = {
            group.index: GroupDecision("too_large")
            for group in groups
            if not self._can_be_sent(group)
        }
        groups = [group for group in groups if group.index not in too_large]
        choice = apply_strategy(strategy, groups, self.room, candidates)
        fit = self._enforce_room(choice)
        # without a turn that an earlier build had, the block doesn't just grow at its end
        decisions = {**fit.decisions, **too_large}
        return choice, replace(fit, decisions=decisions, stable_prefix=False)

    def assemble(self, fit: Fit, minimum_budgets: Callable[[], Mapping[int, int]]) -> FittedBlock:
        """Return the block with the chosen entries, whole or shortened, and with a summary."""
        sent = {
            group.index: entry for group in fit.kept if (entry := self._sent(group)) is not None
        }
        entries = tuple(each.entry for each in sent.values())
        unchanged = all(each.whole for each in sent.values())
        is_cut = len(sent) < len(self.groups) or not unchanged
        block = replace(
            self.block if entries else placeholder_only(self.block),
            entries=entries,
            moves=(is_cut or self.block.moves) and not (fit.stable_prefix and unchanged),
        )
        outcome = BlockOutcome(self.block, self.groups, sent, fit, minimum_budgets)
        summary = self._summary(fit, sent)
        if summary and block.native:
            return FittedBlock(block=block, outcome=outcome, summary=summary)
        if summary:
            block = replace(block, entries=(*summary.entries, *entries))
        return FittedBlock(block=block, outcome=outcome)

    def _enforce_room(self, choice: Fit) -> Fit:
        """Drop the oldest groups that a strategy left over the budget, whichever it protects.

        A summary is dropped first, if it doesn't fit or leaves no room for any chosen group.
        """
        groups = [self._as_sent(group) for group in choice.kept]
        has_summary = choice.summary is not None or choice.stored_summary is not None
        if not has_summary and cost(groups) <= self.room:
            return choice
        room = self.room - self._summary_tokens(choice)
        kept = _newest(groups, room)
        if has_summary and (room < 0 or (groups and not kept)):
            choice = replace(choice, summary=None, stored_summary=None)
            kept = _newest(groups, self.room)
        indices = {group.index for group in kept}
        dropped = {
            group.index: GroupDecision("insufficient")
            for group in choice.kept
            if group.index not in indices
        }
        return replace(
            choice,
            kept=tuple(group for group in choice.kept if group.index in indices),
            decisions={**choice.decisions, **dropped},
            stable_prefix=choice.stable_prefix and not dropped,
        )

    def _as_sent(self, group: Group) -> Group:
        """Return a chosen group with its true cost once its results are cleared, or the room."""
        return self.groups[group.index].without_results(group.cleared).limited_to(self.room)

    # --- entries ---

    def _can_be_sent(self, group: Group) -> bool:
        """Return whether a group fits as the strategy left it, or shortened."""
        whole = self.groups[group.index]
        return whole.tokens_last <= self.room or self._sent(group) is not None

    def _sent(self, group: Group) -> SentEntry | None:
        """Return a group's entry as it is sent; None if it can't be shortened enough."""
        remaining = self.groups[group.index].without_results(group.cleared)
        entry = clear_results(self.block.entries[group.index], group.cleared)
        if remaining.tokens_last <= self.room:
            return SentEntry(entry, remaining.tokens, cleared=group.cleared)
        return self._shorten(entry, group.cleared)

    def _shorten(self, entry: Entry, cleared: frozenset[str]) -> SentEntry | None:
        """Return the entry with as many characters per message as fit, by binary search."""
        if entry.shorten is None or self.room <= 0:
            return None
        best = None
        low, high = MIN_CHARS, max(entry.longest, MIN_CHARS)
        while low <= high:
            # the smallest first: if that doesn't fit, nothing does
            chars = (low + high) // 2 if best else low
            shorter = entry.shorten(chars)
            tokens = last_tokens(shorter, self.count)
            if tokens <= self.room:
                best = SentEntry(shorter, tokens, shortened=True, cleared=cleared)
                low = chars + 1
            else:
                high = chars - 1
        return best

    # --- summaries ---

    def _summary(self, fit: Fit, sent: Mapping[int, SentEntry]) -> Block | None:
        """Return the summary of the groups that are not sent."""
        if fit.stored_summary:
            return summary_block(fit.stored_summary.form.entry)
        if fit.summary is None or len(sent) == len(self.groups):
            return None
        dropped = [group for group in self.groups if group.index not in sent]
        entry = format_summary_entry(fit.summary(dropped), self.block.tags)
        return summary_block(entry, volatile=True)

    def _summary_tokens(self, choice: Fit) -> int:
        """Return the cost of the summary, with the largest numbers that it can contain."""
        if choice.stored_summary:
            return choice.stored_summary.tokens
        if choice.summary is None:
            return 0
        return self._cost_of(format_summary_entry(choice.summary(self.groups), self.block.tags))

    def _cost_of(self, summary: Entry) -> int:
        """Return the cost of a summary before the entries, or as a message of its own."""
        if self.block.native:
            return block_tokens(summary_block(summary), self.count)
        return entry_tokens(summary, self.count)


def _newest(groups: Sequence[Group], room: int) -> Sequence[Group]:
    return groups if cost(groups) <= room else newest_that_fit(groups, room)
