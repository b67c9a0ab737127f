"""Commands in this process, in an empty folder, with logging restored after them."""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner, Result

from service.cli.root import app
from tests.support import logging_put_back


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in an empty folder, without the variables of the user."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.upper().startswith("CTXB_"):
            monkeypatch.delenv(name)
    with logging_put_back():
        yield


#: Commands are made of their functions' signatures each time an application is run; once will do.
_command_of = functools.cache(typer.main.get_command)


@pytest.fixture
def ctxb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Give a function that runs a command line and returns what it printed, and its exit code."""
    monkeypatch.setattr("typer.testing._get_command", _command_of)
    runner = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "80"})

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return runner.invoke(app, arguments, input=stdin)

    return run
