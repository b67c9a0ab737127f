"""The strategy `summarization`: the newest turns, and the summaries of the others."""

from dataclasses import replace

import pytest

from formatters.model import Entry, Message, Role, SummaryForm
from service.budget.groups import Group, SummaryCandidate, cost
from service.budget.strategies.composite import Composite
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.summarization import Summarization, allowance
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.windows import CountSummary

GROUPS = [Group(n, 10, 10, (Message(id=f"m{n}", role=Role.HUMAN, content="hi"),)) for n in range(6)]
ALL = Summarization(summary_budget_ratio=1.0)


def candidate(tokens: int, *covers: str, beyond: bool = False) -> SummaryCandidate:
    """Return summaries, each of the messages whose numbers it names."""
    covered = tuple(frozenset(f"m{number}" for number in each) for each in covers)
    return SummaryCandidate(tokens, SummaryForm(Entry(text="s"), covered, beyond))


def kept(
    strategy: Summarization, budget: int, *candidates: SummaryCandidate
) -> tuple[str, int | None]:
    """Return the numbers of the groups that are kept, and the tokens of the summaries."""
    fit = strategy.fit_with_summaries(GROUPS, budget, candidates)
    shown = fit.stored_summary.tokens if fit.stored_summary else None
    return "".join(str(group.index) for group in fit.kept), shown


def test_without_summaries_it_is_oldest_first() -> None:
    """The same groups for the same reasons, the newest whatever it costs."""
    for budget in range(0, 70, 5):
        ours, theirs = ALL.fit(GROUPS, budget), OldestFirst().fit(GROUPS, budget)
        assert (ours.kept, ours.decisions) == (theirs.kept, theirs.decisions)
        assert ours.over_budget == theirs.over_budget
        assert ours.stored_summary is None
    assert ALL.fit([], 10).kept == ()


def test_turns_fill_what_the_summaries_leave() -> None:
    """Summaries have their tokens first, and the newest turns the rest."""
    assert kept(ALL, 35, candidate(12, "01", "2")) == ("45", 12)


def test_the_oldest_summaries_give_way() -> None:
    """Before the newest turn goes, and above their share."""
    forms = candidate(12, "01", "23"), candidate(7, "23")
    assert kept(ALL, 30, *forms) == ("5", 12)
    assert kept(ALL, 21, *forms) == ("5", 7)
    assert kept(ALL, 16, *forms) == ("5", None)
    assert kept(Summarization(summary_budget_ratio=0.25), 30, *forms) == ("45", 7)


def test_turns_give_way_to_the_newest_summary() -> None:
    """Also above the share of summaries, unless they have none."""
    forms = candidate(12, "01", "23"), candidate(9, "23")
    assert kept(Summarization(summary_budget_ratio=0.25), 20, *forms) == ("5", 9)
    assert kept(Summarization(summary_budget_ratio=0.25), 18, *forms) == ("5", None)
    assert kept(Summarization(summary_budget_ratio=0.0), 30, *forms) == ("345", None)


def test_turns_begin_after_those_that_a_summary_covers() -> None:
    """So that the start stays where it is until there is another summary, or too little room."""
    assert kept(ALL, 55, candidate(12, "012")) == ("345", 12)
    assert kept(ALL, 55, candidate(12, "01", "3")) == ("45", 12)
    assert kept(ALL, 55, candidate(12, "012345")) == ("5", 12)
    for budget, is_stable in ((55, True), (42, True), (41, False)):
        fit = ALL.fit_with_summaries(GROUPS, budget, [candidate(12, "012")])
        assert fit.stored_summary
        assert fit.stable_prefix == is_stable
    unread = [candidate(12, "9", beyond=True)]
    assert not ALL.fit_with_summaries(GROUPS, 75, unread).stable_prefix
    assert not ALL.fit(GROUPS, 55).stable_prefix


def test_a_summary_of_what_is_shown_is_not() -> None:
    """Where nothing that it covers is left out it would say things twice."""
    assert kept(ALL, 60, candidate(5, "01")) == ("012345", None)
    assert kept(ALL, 35, candidate(5, "5")) == ("345", None)


def test_what_was_never_read_needs_a_summary_too() -> None:
    """A summary that goes further back than the groups is shown though all of them fit."""
    assert kept(ALL, 60, candidate(5, "x", beyond=True)) == ("12345", 5)


def test_it_reports_when_summaries_are_wanted() -> None:
    """From the trigger on, where a turn is left out without one, and beyond their share."""
    strategy = Summarization()

    def wanted(budget: int, *candidates: SummaryCandidate) -> bool:
        return strategy.fit_with_summaries(GROUPS, budget, candidates).wanted_summary

    assert not wanted(67)
    assert wanted(66)
    assert not wanted(60, candidate(5, "01"))
    assert wanted(49, candidate(5, "01"))
    assert wanted(100, candidate(26, "01"))
    assert wanted(40, candidate(10, "23"))


def test_several_strategies_share_the_summaries() -> None:
    """A list shows them even where what it kept before would fit."""
    both = Composite(strategies=(ToolResultClearing(), ALL))
    beyond = candidate(5, "x", beyond=True)

    assert both.uses_summaries
    assert not Composite(strategies=(OldestFirst(),)).uses_summaries
    fit = both.fit_with_summaries(GROUPS, 60, [beyond])
    assert fit.stored_summary is beyond
    assert cost(fit.kept) == 50
    assert fit.wanted_summary
    assert OldestFirst().fit_with_summaries(GROUPS, 60, [beyond]).stored_summary is None


def test_stored_summaries_take_precedence_over_a_count() -> None:
    """A list that ends with a count leaves what fits alone."""
    listed = Composite(strategies=(ALL, CountSummary()))
    fit = listed.fit_with_summaries(GROUPS, 30, [candidate(5, "0123")])
    assert fit.stored_summary
    assert fit.summary is None


@pytest.mark.parametrize("name", ["summary_budget_ratio", "trigger_ratio"])
def test_a_ratio_lies_between_nothing_and_all(name: str) -> None:
    """Anything else is refused."""
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=name):
            replace(ALL, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "taken", "left"),
    [
        (400, 0, 200),
        (400, 200, 100),
        (400, 300, 50),
        (400, 310, None),
        (20, 0, 10),
        (400, 500, None),
    ],
)
def test_new_summaries_leave_room_for_others(share: int, taken: int, left: int | None) -> None:
    """Each has half of the remaining room, until that is too little and all are remade."""
    assert allowance(share, taken) == left
