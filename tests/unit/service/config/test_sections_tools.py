"""Servers are reached in one way, and told apart by their names."""

from typing import Any

import pytest
from pydantic import ValidationError

from service.config.sections import ToolsSettings

STDIO = {"name": "git", "command": "uvx"}
HTTP = {"name": "web", "url": "https://tools.example.com/mcp"}


def made(*servers: dict[str, Any]) -> ToolsSettings:
    """Return settings with these servers."""
    return ToolsSettings.model_validate({"mcp": servers})


def test_a_server_is_a_command_or_a_url() -> None:
    """All tools are allowed unless it is said otherwise."""
    stdio, http = made(STDIO, {**HTTP, "headers": {"Authorization": "Bearer x"}}).mcp
    assert (stdio.command, stdio.url, http.command) == ("uvx", None, None)
    assert stdio.allow == ("*",)


def test_secrets_are_not_shown() -> None:
    """Neither those of headers nor those of variables, nor a URL's."""
    http = {**HTTP, "url": "https://u:geheim@host/mcp", "headers": {"A": "geheim"}}
    shown = made(http, {**STDIO, "env": {"TOKEN": "geheim"}})
    assert "geheim" not in f"{shown!r} {shown.model_dump(mode='json')}"


@pytest.mark.parametrize(
    ("server", "cause"),
    [
        ({"name": "a"}, "either a command or a url"),
        ({**STDIO, **HTTP}, "either a command or a url"),
        ({**HTTP, "args": ["x"]}, "args and env go with a command"),
        ({**HTTP, "env": {"x": "y"}}, "args and env go with a command"),
        ({**STDIO, "headers": {"x": "y"}}, "headers go with a url"),
        ({**HTTP, "url": "ftp://host"}, "must begin with http"),
        ({**HTTP, "url": "https://"}, "must begin with http"),
        ({**HTTP, "headers": {"x": "a\r\nb"}}, "printable ASCII"),
        ({**STDIO, "name": "a__b"}, "pattern"),
        ({**STDIO, "name": "a_"}, "pattern"),
        ({**STDIO, "name": "ä"}, "pattern"),
        ({**STDIO, "name": "a" * 25}, "at most 24"),
        ({**STDIO, "timeout_seconds": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_reached_is_refused(server: dict[str, Any], cause: str) -> None:
    """With the reason."""
    with pytest.raises(ValidationError, match=cause):
        made(server)


def test_two_servers_of_one_name_are_refused() -> None:
    """Their tools could not be told apart."""
    with pytest.raises(ValidationError, match="two servers are called 'git'"):
        made(STDIO, STDIO)
