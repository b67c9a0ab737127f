"""Dead letters on the command line, without a bus."""

from collections.abc import Callable

import pytest
from typer.testing import Result

from service.cli.exits import Exit

Ctxb = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["retry"], "give ids, or --all"),
        (["retry", "--reason", "x"], "give ids, or --all"),
        (["retry", "1-1", "--all"], "give ids, or --all"),
        (["drop", "1-1", "--reason", "x"], "--reason goes with --all"),
        (["drop", "--yes"], "give ids, or --all"),
        (["show", "last"], "'last' is not an id"),
        (["retry", "1"], "'1' is not an id"),
        (["drop", "1-1", "18446744073709551616-0"], "is not an id"),
        (["ls", "--limit", "0"], "--limit"),
    ],
)
def test_half_a_choice_is_refused(arguments: list[str], said: str, ctxb: Ctxb) -> None:
    """Nothing is asked of a bus where it isn't clear what is meant."""
    result = ctxb("dead", *arguments)

    assert result.exit_code == Exit.USAGE
    assert said in result.stderr


@pytest.mark.parametrize(
    "arguments", [["ls"], ["show", "1-1"], ["retry", "--all"], ["drop", "--all"]]
)
def test_a_bus_of_ones_own_has_no_dead(arguments: list[str], ctxb: Ctxb) -> None:
    """Without a bus in the settings, there is nothing to look at."""
    result = ctxb("dead", *arguments)

    assert result.exit_code == Exit.CONFIGURATION
    assert "CTXB_BUS__URL" in result.stderr
