"""Fit history: the strategy chooses turns, the oldest of too many go, too large ones are shortened.

Turns are the groups of the block, one for each entry; native history has units of calls and results
in their place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
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
from service.budget.decisions import FittedBlock, SentEntry
from service.budget.groups import (
    Fit,
    Group,
    GroupDecision,
    Strategy,
    SummaryCandidate,
    checked,
    cost,
    newest_that_fit,
    suffix_costs,
)

#: Results of a run are cleared for as many tokens at a time as the budget has by this number.
CLEARED_PARTS: Final = 8
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
        fit = Fit(kept=tuple(groups))
        fitting = _Fitting(block, groups, largest, count)
        return fitting.assemble(fit, fitting.send(fit))
    fixed = fixed_tokens(block, count)
    fitting = _Fitting(block, groups, budget - fixed, count)
    choice, fit, sent = fitting.choose(strategy)

    def minimum_budgets() -> dict[int, int]:
        # with summaries, a larger budget may bring back another summary instead of a group
        reported = {} if block.forms else strategy.least(groups)
        # the rest of a turn that was read in part would need tokens, too
        unknown = {0} if block.is_cut else ()
        return {index: tokens + fixed for index, tokens in reported.items() if index not in unknown}

    insufficient = len(fit.kept) < len(choice.kept)
    return fitting.assemble(fit, sent, minimum_budgets, insufficient=insufficient)


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
    whole = entry.shorten
    shorten = (lambda chars: clear_results(whole(chars), ids)) if whole else None
    reasons = {**entry.reasons, **dict.fromkeys(ids, "result_cleared")}
    return replace(entry, native=native, results=results, reasons=reasons, shorten=shorten)


def shorten(entry: Entry, room: int, count: Count) -> SentEntry | None:
    """Return the entry with as many characters per message as fit, by binary search."""
    if entry.shorten is None or room <= 0:
        return None
    best = None
    low, high = MIN_CHARS, max(entry.longest, MIN_CHARS)
    while low <= high:
        # the smallest first: if that doesn't fit, nothing does
        chars = (low + high) // 2 if best else low
        shorter = entry.shorten(chars)
        tokens = last_tokens(shorter, count)
        if tokens <= room:
            best = SentEntry(shorter, tokens)
            low = chars + 1
        else:
            high = chars - 1
    return best


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A block of history, and the tokens that its entries may use."""

    block: Block
    groups: Sequence[Group]
    room: int
    count: Count

    def choose(self, strategy: Strategy) -> tuple[Fit, Fit, Mapping[int, SentEntry]]:
        """Return the strategy's choice, the part that fits, and the entries sent for it.

        If a chosen group can't be sent in any form, the strategy chooses again without all such.
        """
        room = self.room
        groups = [g if g.tokens_last <= room else g.limited_to(room) for g in self.groups]
        candidates = [SummaryCandidate(self._cost_of(f.entry), f) for f in self.block.forms]
        choice = checked(strategy, strategy.fit_with_summaries(groups, room, candidates))
        fit = self._enforce_room(choice)
        sent = self.send(fit)
        if len(sent) == len(fit.kept):
            return choice, fit, sent
        too_large = {
            group.index: GroupDecision("too_large") for group in groups if not self._sent(group)
        }
        groups = [group for group in groups if group.index not in too_large]
        choice = checked(strategy, strategy.fit_with_summaries(groups, room, candidates))
        fit = self._enforce_room(choice)
        # without a turn that an earlier build had, the block doesn't just grow at its end
        fit = replace(fit, decisions={**fit.decisions, **too_large}, stable_prefix=False)
        return choice, fit, self.send(fit)

    def send(self, fit: Fit) -> dict[int, SentEntry]:
        """Return the entries of kept groups that can be sent, by the index of the group."""
        entries, room = self.block.entries, self.room
        return {
            group.index: sent
            for group in fit.kept
            if (
                # most are sent as they are
                sent := SentEntry(entries[group.index], group.tokens)
                if group is self.groups[group.index] and group.tokens_last <= room
                else self._sent(group)
            )
        }

    def assemble(
        self,
        fit: Fit,
        sent: Mapping[int, SentEntry],
        minimum_budgets: Callable[[], Mapping[int, int]] = dict,
        *,
        insufficient: bool = False,
    ) -> FittedBlock:
        """Return the block with the chosen entries, whole or shortened, and with a summary."""
        entries = tuple([each.entry for each in sent.values()])
        unchanged = all(map(is_, entries, map(self.block.entries.__getitem__, sent)))
        is_cut = len(sent) < len(self.groups) or not unchanged
        block = replace(
            self.block if entries else placeholder_only(self.block),
            entries=entries,
            moves=(is_cut or self.block.moves) and not (fit.stable_prefix and unchanged),
        )
        summary = self._summary(fit, sent)
        if summary and not block.native:
            block = replace(block, entries=(*summary.entries, *entries))
        return FittedBlock(
            original=self.block,
            block=block,
            groups=self.groups,
            sent=sent,
            fit=fit,
            minimum_budgets=minimum_budgets,
            insufficient=insufficient,
            summary=summary if block.native else None,
        )

    def _enforce_room(self, choice: Fit) -> Fit:
        """Drop the oldest groups that a strategy left over the budget, whichever it protects.

        A summary is dropped first, if it doesn't fit or leaves no room for any chosen group.
        """
        has_summary = choice.summary is not None or choice.stored_summary is not None
        given = [self.groups[group.index] for group in choice.kept]
        is_cleared = any(group.cleared for group in choice.kept)
        if not (has_summary or is_cleared) and cost(given) <= self.room:
            return choice
        # at their true costs once their results are cleared
        whole = (self.groups[g.index].without_results(g.cleared) for g in choice.kept)
        groups = [group.limited_to(self.room) for group in whole]
        if not has_summary and cost(groups) <= self.room:
            return choice
        room = self.room - self._summary_tokens(choice)
        kept = newest_that_fit(groups, room)
        if has_summary and (room < 0 or (groups and not kept)):
            choice = replace(choice, summary=None, stored_summary=None)
            kept = newest_that_fit(groups, self.room)
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

    # --- entries ---

    def _sent(self, group: Group) -> SentEntry | None:
        """Return a group's entry as it is sent; None if it can't be shortened enough."""
        remaining, entry = self.groups[group.index], self.block.entries[group.index]
        if group.cleared:
            remaining = remaining.without_results(group.cleared)
            entry = clear_results(entry, group.cleared)
        if remaining.tokens_last <= self.room:
            return SentEntry(entry, remaining.tokens)
        return shorten(entry, self.room, self.count)

    # --- summaries ---

    def _summary(self, fit: Fit, sent: Mapping[int, SentEntry]) -> Block | None:
        """Return the summary of the groups that are not sent."""
        if fit.stored_summary:
            return summary_block(fit.stored_summary.form.entry)
        if fit.summary is None or len(sent) == len(self.groups):
            return None
        dropped = [group for group in self.groups if group.index not in sent]
        return summary_block(self._to_entry(fit.summary, dropped), volatile=True)

    def _summary_tokens(self, choice: Fit) -> int:
        """Return the cost of the summary, with the largest numbers that it can contain."""
        if choice.stored_summary:
            return choice.stored_summary.tokens
        if choice.summary is None:
            return 0
        return self._cost_of(self._to_entry(choice.summary, self.groups))

    def _to_entry(
        self, describe: Callable[[Sequence[Group]], str], groups: Sequence[Group]
    ) -> Entry:
        """Return the entry of a sentence on groups, which says if there are older messages."""
        more = "; older messages are not counted" if self.block.moves else ""
        return format_summary_entry(f"{describe(groups)}{more}")

    def _cost_of(self, summary: Entry) -> int:
        """Return the cost of a summary before the entries, or as a message of its own."""
        if self.block.native:
            return block_tokens(summary_block(summary), self.count)
        return entry_tokens(summary, self.count)


def fit_run(block: Block, budget: int, count: Count) -> FittedBlock:
    """Fit a run into ``budget`` tokens; its newest group stays whole, even if that needs more."""
    groups = make_groups(block, count)
    kept = _choose_groups(groups, budget)
    sent = {
        group.index: SentEntry(
            clear_results(block.entries[group.index], group.cleared), group.tokens
        )
        for group in kept
    }
    older = GroupDecision("run_older")
    fit = Fit(kept=kept, decisions={group.index: older for group in groups})
    return FittedBlock(
        original=block,
        block=replace(block, entries=tuple(each.entry for each in sent.values())),
        groups=groups,
        sent=sent,
        fit=fit,
        minimum_budgets=partial(suffix_costs, groups),
    )


def _choose_groups(groups: Sequence[Group], budget: int) -> tuple[Group, ...]:
    """Keep as many groups as fit with cleared results, then clear what is necessary, in steps.

    Savings are rounded up to whole steps, so that most steps of a growing run clear nothing that
    the step before it did not, and prompt caches can reuse all of its messages.
    """
    smallest = [group.without_results(group.savings) for group in groups[:-1]]
    fitting = newest_that_fit((*smallest, *groups[-1:]), budget)
    kept = list(groups[-len(fitting) :] if fitting else groups[-1:])
    step = max(budget // CLEARED_PARTS, 1)
    excess = -((budget - cost(kept)) // step) * step  # rounded up
    for index, group in enumerate(kept[:-1]):
        for id_, saved in group.savings.items():
            if excess <= 0:
                break
            kept[index] = kept[index].without_results((id_,))
            excess -= saved
    return tuple(kept)
