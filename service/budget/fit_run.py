"""Fit the run in flight: old tool results are cleared, then old groups go; the newest stays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from formatters.model import Block, Count
from service.budget.decisions import Decision, Fates, Shown
from service.budget.fit_history import priced, with_cleared
from service.budget.groups import Fit, Group, Verdict, cost, newest_that_fit, suffix_costs


@dataclass(frozen=True, slots=True)
class FittedRun:
    """The run as it is sent, and what became of its messages."""

    block: Block
    fates: Fates

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate."""
        return self.fates.decisions


def fit_run(block: Block, budget: int, count: Count) -> FittedRun:
    """Give a run ``budget`` tokens; its newest group stays whole, even where that takes more."""
    groups = priced(block, count)
    kept = _kept(groups, budget)
    shown = {
        group.index: Shown(
            with_cleared(block.entries[group.index], group.cleared),
            group.tokens,
            cleared=group.cleared,
        )
        for group in kept
    }
    older = Verdict("run_older")
    fit = Fit(kept=kept, verdicts={group.index: older for group in groups})
    return FittedRun(
        block=replace(block, entries=tuple(each.entry for each in shown.values())),
        fates=Fates(block, groups, shown, fit, partial(suffix_costs, groups)),
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
