"""Fit the run in flight: old tool results are cleared, then old groups go; the newest stays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from formatters.model import Block, Count
from service.budget.decisions import BlockOutcome, Decision, SentEntry
from service.budget.fit_history import clear_results, make_groups
from service.budget.groups import Fit, Group, GroupDecision, cost, newest_that_fit, suffix_costs


@dataclass(frozen=True, slots=True)
class FittedRun:
    """The run as it is sent, and what became of its messages."""

    block: Block
    outcome: BlockOutcome

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate."""
        return self.outcome.decisions


def fit_run(block: Block, budget: int, count: Count) -> FittedRun:
    """Give a run ``budget`` tokens; its newest group stays whole, even where that takes more."""
    groups = make_groups(block, count)
    kept = _kept(groups, budget)
    shown = {
        group.index: SentEntry(
            clear_results(block.entries[group.index], group.cleared),
            group.tokens,
            cleared=group.cleared,
        )
        for group in kept
    }
    older = GroupDecision("run_older")
    fit = Fit(kept=kept, decisions={group.index: older for group in groups})
    return FittedRun(
        block=replace(block, entries=tuple(each.entry for each in shown.values())),
        outcome=BlockOutcome(block, groups, shown, fit, partial(suffix_costs, groups)),
    )


def newest_alone(block: Block) -> Block:
    """Return the least that a run may be."""
    return replace(block, entries=block.entries[-1:])


def _kept(groups: Sequence[Group], budget: int) -> tuple[Group, ...]:
    """Keep as many groups as clearing makes room for, and clear no more than that takes."""
    least = [group.without_results(group.savings) for group in groups[:-1]]
    staying = len(newest_that_fit((*least, *groups[-1:]), budget)) or 1
    kept = list(groups[-staying:])
    over = cost(kept) - budget
    for place, group in enumerate(kept[:-1]):
        for id_, saved in group.savings.items():
            if over <= 0:
                break
            kept[place] = kept[place].without_results((id_,))
            over -= saved
    return tuple(kept)
