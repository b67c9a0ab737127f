"""The table of commands."""

from collections.abc import Callable

import pytest
from typer.testing import Result

from service.cli.root import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    """`ctxb --help` shows a line of the table, a command's own help begins with the same one."""
    assert COMMANDS[name] == load_command(name).help.partition("\n\n")[0]


@pytest.mark.parametrize("command", [(), ("send",), ("history", "rm")])
def test_flags_are_shown_without_a_type(
    ctxb: Callable[..., Result], command: tuple[str, ...]
) -> None:
    """They take no value, and `--json true` is refused."""
    shown = ctxb(*command, "--help").stdout
    assert "--help " in shown
    assert "bool" not in shown
