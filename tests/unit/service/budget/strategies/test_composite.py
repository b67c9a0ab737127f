"""Several strategies in turn, and how they are named."""

from collections.abc import Sequence

import pytest

from formatters.model import Message, Role
from service.budget.groups import Fit, Group, Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.composite import Composite
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.windows import CountSummary, SmartWindow, WindowSize
from service.budget.strategy_names import UnknownStrategyError, read_strategy

GROUPS = [
    Group(
        index=n,
        tokens=10,
        tokens_last=10,
        messages=(Message(id=f"m{n}", role=Role.HUMAN, content="hi"),),
    )
    for n in range(10)
]


def indices(fit: Fit) -> list[int]:
    """Return what is kept."""
    return [group.index for group in fit.kept]


def test_strategies_run_in_turn_until_the_budget_is_met() -> None:
    """The second one is not asked where the first was enough."""
    both = Composite(strategies=(WindowSize(max_messages=5), OldestFirst()))

    assert indices(both.fit(GROUPS, 100)) == list(range(10))
    assert indices(both.fit(GROUPS, 60)) == [5, 6, 7, 8, 9]
    assert indices(both.fit(GROUPS, 30)) == [7, 8, 9]
    assert {v.reason for v in both.fit(GROUPS, 30).decisions.values()} == {"window", "older"}


def test_what_is_left_over_the_budget_is_reported() -> None:
    """A list says of its last choice what a single strategy says of its own."""
    windows = Composite(strategies=(WindowSize(max_messages=5), WindowSize(max_messages=3)))

    assert windows.fit(GROUPS, 29).over_budget
    assert not windows.fit(GROUPS, 30).over_budget


def test_a_summary_is_passed_on() -> None:
    """A later strategy only leaves out more rows for it to count."""
    summarizing = Composite(strategies=(CountSummary(max_items=5), OldestFirst()))

    assert summarizing.fit(GROUPS, 30).summary
    assert summarizing.fit(GROUPS, 1_000).summary is None


def test_a_composite_reads_what_its_members_need() -> None:
    """All of the history, where one of them chooses from all of it."""
    assert not Composite(strategies=(OldestFirst(),)).reads_all
    assert Composite(strategies=(OldestFirst(), SmartWindow())).reads_all


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_name_is_the_strategy_of_the_table(name: str) -> None:
    """Alone, or as an object without parameters."""
    assert read_strategy(name) is STRATEGIES[name]
    assert read_strategy({"name": name}) is STRATEGIES[name]


def test_parameters_and_lists_are_read() -> None:
    """A list is a composite; parameters replace defaults, whole numbers serve as fractions."""
    read = read_strategy([{"name": "window_size", "max_messages": 3}, "oldest_first"])

    assert read == Composite(strategies=(WindowSize(max_messages=3), OldestFirst()))
    assert read_strategy({"name": "importance", "recency_weight": 7}) != STRATEGIES["importance"]


@pytest.mark.parametrize(
    ("spec", "place", "reported"),
    [
        ("best", "", "'best' is no strategy; there are composite, count_summary, importance"),
        ("relevanze", "", "; did you mean relevance\\?$"),
        ({"name": "window_size", "max_message": 1}, "/max_message", "mean max_messages\\?$"),
        (None, "", "None is no strategy"),
        ({"id": "none"}, "", "a strategy needs the key name; its keys are: 'id'"),
        ([{}], "/0", "a strategy needs the key name; its keys are: none"),
        ([], "", "^a list of strategies needs at least one$"),
        (["oldest_first", "best"], "/1", "'best' is no strategy"),
        ([["oldest_first"]], "/0", "no strategy"),
        (
            {"name": "oldest_first", "n": 1},
            "/n",
            "^oldest_first has no parameter 'n'; it has none$",
        ),
        ({"name": "window_size", "name_": 1}, "/name_", "it has max_messages"),
        (
            {"name": "window_size", "max_messages": "3"},
            "/max_messages",
            "^max_messages of window_size has to be of the type int, not '3'$",
        ),
        ({"name": "window_size", "max_messages": True}, "/max_messages", "of the type int"),
        ({"name": "importance", "recency_weight": "7"}, "/recency_weight", "of the type float"),
        ({"name": "smart_window", "prioritize_tools": 1}, "/prioritize_tools", "of the type bool"),
        (
            {"name": "smart_window", "most": 1},
            "/most",
            "it has max_messages, preserve_initial, prioritize_tools$",
        ),
        ({"name": "window_size", "reads_all": True}, "/reads_all", "no parameter"),
        ([{"name": "window_size", "max_messages": 0}], "/0", "at least 1"),
        ({"name": "importance", "role_weights": {}}, "/role_weights", "no parameter"),
        (
            {"name": "importance", "recency_weight": 10**310},
            "/recency_weight",
            "^recency_weight has to lie between -1000000000 and 1000000000, not be 1000.*000$",
        ),
        ({"name": "importance", "length_weight": float("nan")}, "/length_weight", "has to lie"),
    ],
)
def test_what_is_no_strategy_is_refused_with_its_place(
    spec: object, place: str, reported: str
) -> None:
    """Below the place of the strategy, as a JSON pointer goes on."""
    with pytest.raises(UnknownStrategyError, match=reported) as caught:
        read_strategy(spec)

    assert caught.value.pointer == place


class Own(Strategy):
    """A strategy from elsewhere, which is no dataclass."""

    name = "own"
    reads_all = False

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Keep nothing."""
        return Fit(kept=())


def test_a_strategy_from_elsewhere_has_no_parameters() -> None:
    """It is named like the others."""
    own: dict[str, Strategy] = {"own": Own()}

    assert read_strategy("own", own) is own["own"]
    with pytest.raises(UnknownStrategyError, match="it has none"):
        read_strategy({"name": "own", "n": 1}, own)


def test_a_list_of_one_is_that_one() -> None:
    """So `none` means the same in a list."""
    assert read_strategy(["none"]) is STRATEGIES["none"]


def test_a_list_may_be_called_by_name() -> None:
    """The list and the composite of that list are the same, and so are their errors."""
    strategies = [{"name": "window_size", "max_messages": 3}, "oldest_first"]

    assert read_strategy({"name": "composite", "strategies": strategies}) == read_strategy(
        strategies
    )
    with pytest.raises(UnknownStrategyError, match="'x' is no strategy") as raised:
        read_strategy({"name": "composite", "strategies": ["none", "x"]})
    assert raised.value.pointer == "/strategies/1"
    for name, reported in (("composite", "no parameter 'strategies'"), ("none", "has none")):
        with pytest.raises(UnknownStrategyError, match=reported):
            read_strategy({"name": name, "strategies": "none"})


def test_the_name_alone_tries_what_costs_least_first() -> None:
    """Results that can be looked up again are cleared before turns go."""
    assert read_strategy("composite") == Composite() == STRATEGIES["composite"]
    assert Composite().fit(GROUPS, 30).kept == OldestFirst().fit(GROUPS, 30).kept


def test_a_long_name_is_shortened() -> None:
    """An error doesn't send back all that a stranger sent."""
    with pytest.raises(UnknownStrategyError) as raised:
        read_strategy("x" * 10_000)
    assert len(str(raised.value)) < 400
