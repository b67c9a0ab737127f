"""Fit the run in flight: clear old tool results, then drop old groups; the newest stays."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from formatters.model import Block, Count
from service.budget.counting import make_groups
from service.budget.decisions import BlockOutcome, FittedBlock, SentEntry
from service.budget.fit_history import clear_results
from service.budget.groups import Fit, Group, GroupDecision, cost, newest_that_fit, suffix_costs


def fit_run(block: Block, budget: int, count: Count) -> FittedBlock:
    """Fit a run into ``budget`` tokens; its newest group stays whole, even if that needs more."""
    groups = make_groups(block, count)
    kept = _choose(groups, budget)
    sent = {
        group.index: SentEntry(
            clear_results(block.entries[group.index], group.cleared),
            group.tokens,
            cleared=group.cleared,
        )
        for group in kept
    }
    older = GroupDecision("run_older")
    fit = Fit(kept=kept, decisions={group.index: older for group in groups})
    return FittedBlock(
        block=replace(block, entries=tuple(each.entry for each in sent.values())),
        outcome=BlockOutcome(block, groups, sent, fit, partial(suffix_costs, groups)),
    )


def newest_group_only(block: Block) -> Block:
    """Return a run with nothing but its newest group, which it is never sent without."""
    return replace(block, entries=block.entries[-1:])


def _choose(groups: Sequence[Group], budget: int) -> tuple[Group, ...]:
    """Keep as many groups as fit with cleared results, then clear no more than necessary."""
    smallest = [group.without_results(group.savings) for group in groups[:-1]]
    fitting = newest_that_fit((*smallest, *groups[-1:]), budget)
    kept = list(groups[-len(fitting) :] if fitting else groups[-1:])
    excess = cost(kept) - budget
    for index, group in enumerate(kept[:-1]):
        for id_, saved in group.savings.items():
            if excess <= 0:
                break
            kept[index] = kept[index].without_results((id_,))
            excess -= saved
    return tuple(kept)
