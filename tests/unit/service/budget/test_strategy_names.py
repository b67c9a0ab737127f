import pytest

from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES


@pytest.mark.parametrize(("name", "strategy"), STRATEGIES.items())
def test_strategies_know_their_name(name: str, strategy: Strategy) -> None:
    """A strategy is found under the name that it gives itself."""
    assert strategy.name == name


@pytest.mark.parametrize(
    ("name", "reads_all"), [("none", True), ("oldest_first", False), ("middle_out", True)]
)
def test_what_strategies_read(name: str, *, reads_all: bool) -> None:
    """Only what drops the oldest first can do without them from the start."""
    assert STRATEGIES[name].reads_all is reads_all
