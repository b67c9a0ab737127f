"""Errors become exit codes in one place."""

from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

from service.cli.exits import ErrorsBecomeExits, Exit, exit_code
from service.errors import (
    BudgetExceededError,
    BusError,
    ConfigError,
    ContextBuilderError,
    InvalidRequestError,
    Problem,
    StoreError,
    ToolError,
)
from service.worker.client import NoAnswerError, NoWorkerError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextBuilderError(), Exit.FAILED),
        (InvalidRequestError(), Exit.FAILED),
        (ConfigError(), Exit.CONFIGURATION),
        (ToolError(), Exit.CONFIGURATION),
        (NoAnswerError(), Exit.NO_ANSWER),
        (NoWorkerError(), Exit.NO_ANSWER),
        (BusError(), Exit.UNREACHABLE),
        (StoreError(), Exit.UNREACHABLE),
        (BudgetExceededError(), Exit.BUDGET),
    ],
)
def test_each_kind_of_error_has_its_code(error: ContextBuilderError, code: Exit) -> None:
    """The exit code identifies the kind of error for scripts."""
    assert exit_code(error) is code


def test_errors_are_reported_without_a_traceback() -> None:
    """An error is a line with its cause, and a line for each place that it doesn't name itself."""
    app = typer.Typer(cls=ErrorsBecomeExits)
    problems = [Problem("/a", "is wrong"), Problem("/b", "is odd"), Problem("/c", "too")]

    @app.command()
    def fail() -> None:
        raise InvalidRequestError("/a: is wrong, and so is too", problems)

    @app.command()
    def other() -> None:
        """Make a group of it."""

    result = CliRunner().invoke(app, ["fail"])
    assert result.exit_code == Exit.FAILED
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: /a: is wrong, and so is too",
        "  at /b: is odd",
        "  at /c",
    ]


def test_each_problem_of_the_settings_is_an_error() -> None:
    """Each line of a configuration error is marked, but for lines that belong to the one before."""
    app = typer.Typer(cls=ErrorsBecomeExits)

    @app.command()
    def fail() -> None:
        raise ConfigError("c.yml:1:1  a: is wrong\n  quite\nb: is odd")

    @app.command()
    def other() -> None:
        """Make a group of it."""

    result = CliRunner().invoke(app, ["fail"])
    assert result.exit_code == Exit.CONFIGURATION
    assert result.stderr == "error: c.yml:1:1  a: is wrong\n  quite\nerror: b: is odd\n"


@pytest.mark.parametrize("arguments", [["--level", "loud"], ["go", "--colour", "loud"]])
def test_a_wrong_choice_is_reported_in_plain_words(arguments: list[str]) -> None:
    """Of the whole program or of a command: the message names the choices, and no class."""
    app = typer.Typer(cls=ErrorsBecomeExits)

    @app.callback()
    def root(level: Literal["low", "high"] = "low") -> None:
        """Make a group of it."""

    @app.command()
    def go(colour: Literal["red", "blue"] = "red") -> None:
        """Do nothing."""

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == Exit.USAGE
    assert f"Invalid value for '{arguments[-2]}': 'loud' is not one of" in result.stderr
