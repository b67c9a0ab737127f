"""Strategies of other packages."""

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.budget.groups import Fit, Group, GroupDecision, Strategy
from service.budget.strategies.oldest_first import OldestFirst
from service.build import plugins
from service.build.plugins import PluginStrategy, load_strategies
from service.recall.ranking import RANKING_STRATEGIES

GROUPS = [Group(index=n, tokens=10, tokens_last=10) for n in range(4)]


class FirstOnly(Strategy):
    """Keep the first group."""

    name = "first_only"
    reads_all = True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the first group."""
        return Fit(kept=tuple(groups[:1]), decisions={1: GroupDecision("older")})


class Unwilling:
    """A class that can't be made."""

    def __init__(self) -> None:
        raise RuntimeError("not today")


INSTANCE = FirstOnly()
NO_STRATEGY = 7


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that packages with these entry points are installed."""

    def pretend(**points: str) -> None:
        found = EntryPoints(
            EntryPoint(name=name, value=value, group=plugins.STRATEGY_GROUP)
            for name, value in points.items()
        )
        monkeypatch.setattr(plugins, "entry_points", lambda *, group: found.select(group=group))

    return pretend


def at(name: str) -> str:
    """Return where something of this module is."""
    return f"{__name__}:{name}"


@pytest.mark.parametrize("value", ["FirstOnly", "INSTANCE"])
def test_a_strategy_of_another_package_is_found(install: Callable[..., None], value: str) -> None:
    """A class is made, an instance is taken; the shipped ones are still there."""
    install(mine=at(value))
    found = load_strategies()

    assert set(found) == {*RANKING_STRATEGIES, "mine"}
    assert found["mine"].name == "mine"
    assert found["mine"].reads_all
    assert found["mine"].fit(GROUPS, 20).kept == tuple(GROUPS[:1])


@pytest.mark.parametrize(
    "value", ["nowhere:Nothing", f"{__name__}:Missing", at("Unwilling"), at("NO_STRATEGY")]
)
def test_a_broken_one_is_reported_and_left_out(install: Callable[..., None], value: str) -> None:
    """It stops neither the others nor the worker."""
    install(broken=value, mine=at("FirstOnly"))
    with capture_logs() as logs:
        found = load_strategies()

    assert set(found) == {*RANKING_STRATEGIES, "mine"}
    assert [(line["event"], line["plugin"]) for line in logs] == [("plugin.broken", "broken")]


def test_a_shipped_name_is_taken(install: Callable[..., None]) -> None:
    """Nobody's package changes what `oldest_first` means."""
    install(oldest_first=at("FirstOnly"))
    with capture_logs() as logs:
        found = load_strategies()

    assert found == RANKING_STRATEGIES
    assert logs[0]["event"] == "plugin.name_taken"


class Returning(Strategy):
    """A strategy that returns what it was given."""

    name = "returning"
    reads_all = False

    def __init__(self, result: Any) -> None:
        self.result = result

    def fit(self, groups: Sequence[Group], budget: int) -> Any:
        """Return it, or raise it."""
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    "result",
    [
        RuntimeError("oops"),
        None,
        Fit(kept=(GROUPS[1], GROUPS[0])),
        Fit(kept=(GROUPS[0], GROUPS[0])),
        Fit(kept=(GROUPS[0]._replace(tokens=1),)),
        Fit(kept=(Group(index=9, tokens=1, tokens_last=1),)),
        Fit(kept=(group for group in GROUPS)),  # type: ignore[arg-type] # strangers' code
        Fit(kept=(), decisions=None),  # type: ignore[arg-type] # strangers' code
        Fit(kept=(), decisions={0: "older"}),  # type: ignore[dict-item] # strangers' code
        Fit(kept=(), decisions={0: GroupDecision(None)}),  # type: ignore[arg-type] # strangers' code
        Fit(kept=(), decisions={0: GroupDecision("older", float("nan"))}),
    ],
)
def test_where_it_fails_the_oldest_go_first(result: object) -> None:
    """An error, and a choice that is none: invented, doubled, out of order, or oddly judged."""
    with capture_logs() as logs:
        fit = PluginStrategy(Returning(result), "mine").fit(GROUPS, 25)

    assert fit == OldestFirst().fit(GROUPS, 25)
    assert logs[0]["event"] == "plugin.failed"


@pytest.mark.parametrize(
    ("summary", "reported"),
    [
        (lambda groups: f"{len(groups)} turns", "2 turns"),
        (lambda groups: groups[9], "Previous 0 turns"),
        (lambda groups: None, "Previous 0 turns"),
        (lambda groups: "two\nlines", "Previous 0 turns"),
    ],
)
def test_its_summary_is_a_line_or_a_count(summary: Any, reported: str) -> None:
    """Whatever it does."""
    mine = Returning(Fit(kept=tuple(GROUPS[2:]), summary=summary))

    fit = PluginStrategy(mine, "mine").fit(GROUPS, 25)

    assert fit.kept == tuple(GROUPS[2:])
    assert fit.summary
    assert fit.summary(GROUPS[:2]).startswith(reported)


class Unreadable(FirstOnly):
    """A strategy that can't say what it reads."""

    @property
    def reads_all(self) -> bool:  # type: ignore[override] # strangers' code
        """Fail."""
        raise RuntimeError("what?")


def test_it_may_fail_to_say_what_it_reads() -> None:
    """Then it is taken to read what the budget can hold."""
    with capture_logs() as logs:
        assert PluginStrategy(Unreadable(), "mine").reads_all is False
    assert logs[0]["event"] == "plugin.failed"


def test_a_choice_with_a_reason_and_a_score_stands() -> None:
    """Reasons are its own."""
    fit = Fit(kept=tuple(GROUPS[1:]), decisions={0: GroupDecision("mood", 0.5)})

    assert PluginStrategy(Returning(fit), "mine").fit(GROUPS, 25) == fit
