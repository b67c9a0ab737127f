"""The table of commands."""

import pytest

from service.cli.root import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    """`ctxb --help` shows a line of the table, a command's own help begins with the same one."""
    assert COMMANDS[name] == load_command(name).help.partition("\n\n")[0]
