"""Settings of tools and summaries."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from service.config.content import ToolsSettings
from service.config.load import describe, load_settings

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
    """Their tools could not be distinguished."""
    with pytest.raises(ValidationError, match="two servers are called 'git'"):
        made(STDIO, STDIO)


#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


LOCAL = {"kind": "openai", "model": "m", "base_url": "http://localhost:11434/v1"}


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"kind": "magic"}, "summaries.summarizer.kind"),
        ({"model": "m"}, "summaries.summarizer: kind is missing: openai uses model, extractive"),
        ({**LOCAL, "model": None}, "summarizer.model: must be given where"),
        ({**LOCAL, "base_url": None}, "summarizer.api_key: must be given where"),
        ({**LOCAL, "base_url": "localhost:11434"}, "summarizer.base_url: must begin with http"),
        ({**LOCAL, "base_url": "http:///v1"}, "summarizer.base_url: must begin with http"),
        ({**LOCAL, "api_key": "two words"}, "summarizer.api_key: must be ASCII"),
        ({**LOCAL, "api_key": "line\n"}, "summarizer.api_key: must be ASCII"),
        ({**LOCAL, "api_key": "schlüssel"}, "summarizer.api_key: must be ASCII"),
        ({**LOCAL, "api_key": ""}, "summarizer.api_key: must be ASCII"),
        ({"chunk_tokens": 255}, "summarizer.chunk_tokens"),
        ({"temperature": 3}, "summarizer.temperature"),
        ({"limit_field": "length"}, "summarizer.limit_field"),
    ],
)
def test_a_summarizer_that_could_not_work_is_refused(
    chosen: dict[str, object], problem: str, problems: Problems
) -> None:
    """Before anything is asked of it, and by name."""
    (line,) = problems(summaries={"summarizer": chosen})
    assert problem in line


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({**LOCAL, "model": None}, "embedder.model: must be given where"),
        ({**LOCAL, "base_url": None}, "embedder.api_key: must be given where"),
        ({**LOCAL, "api_key": "two words"}, "embedder.api_key: must be ASCII"),
    ],
)
def test_an_embedder_that_could_not_work_is_refused(
    chosen: dict[str, object], problem: str, problems: Problems
) -> None:
    """As a summarizer is."""
    (line,) = problems(recall={"embedder": chosen})
    assert problem in line


@pytest.mark.parametrize(
    "chosen",
    [
        LOCAL,
        {"kind": "openai", "model": "m", "api_key": "key"},
        {"kind": "extractive", "model": "m", "temperature": None, "retries": 0},
        {"model": None, "retries": 0},
    ],
)
def test_a_summarizer_that_can_work_is_taken(chosen: dict[str, object]) -> None:
    """A server may ask for no key, OpenAI's own needs no address."""
    settings = load_settings(None, summaries={"summarizer": chosen})
    assert settings.summaries.summarizer.model == chosen["model"]


def test_keys_are_masked() -> None:
    """So is a password in the address; the rest of the address is shown."""
    chosen = {**LOCAL, "base_url": "https://ana:hidden@host/v1", "api_key": "hidden"}
    settings = load_settings(None, summaries={"summarizer": chosen})
    shown = {entry.path: entry.value for entry in describe(settings)}

    assert shown["summaries.summarizer.base_url"] == "https://ana:***@host/v1"
    assert shown["summaries.summarizer.api_key"] == "***"
    assert "hidden" not in repr(settings)
