"""The tools that stand for deferred ones, and what a search finds."""

import json
from typing import Any

import pytest

from formatters.deferred import (
    CALL_NAME,
    SEARCH_NAME,
    STAND_INS,
    read_definitions,
    read_query,
    write_definition,
)
from formatters.guard import GUARD
from formatters.model import ToolCall
from formatters.role_marks import TOKENS
from service.wire.tool_definitions import check_definition, tool_name
from tests.support import SEARCH


def test_the_stand_ins_are_tools() -> None:
    """They are valid definitions."""
    for tool in STAND_INS:
        check_definition(tool, "stand-in")
    assert [tool_name(tool) for tool in STAND_INS] == [SEARCH_NAME, CALL_NAME]


@pytest.mark.parametrize(
    ("name", "arguments", "query"),
    [
        (SEARCH_NAME, {"query": "flights"}, "flights"),
        (SEARCH_NAME, {"query": 7}, ""),
        (SEARCH_NAME, {}, ""),
        (SEARCH_NAME, None, ""),
        (CALL_NAME, {"query": "flights"}, None),
    ],
)
def test_only_searches_have_a_query(name: str, arguments: Any, query: str | None) -> None:
    """A search without words searches for nothing."""
    assert read_query(ToolCall(id="c", name=name, arguments=arguments)) == query


def test_definitions_are_read_as_they_are_written() -> None:
    """A line each, with the whole definition."""
    line = write_definition(SEARCH)

    assert json.loads(line) == SEARCH["function"]
    assert read_definitions(line + line, ["web_search"]) == ["web_search", "web_search"]


def test_definitions_with_special_tokens_are_read() -> None:
    """The guard changes nothing in them, broken tokens or not."""
    tokens = " ".join(token.replace("*", "x") for each in TOKENS.values() for token in each)
    for description in (tokens, GUARD.shatter(tokens), f'"\\n\\{tokens}'):
        function = {"name": "web_search", "description": description}
        line = write_definition({"type": "function", "function": function})

        assert GUARD.shatter(line) == line
        assert json.loads(line)["description"] == description
        assert read_definitions(line + write_definition(SEARCH), ["web_search"])


@pytest.mark.parametrize(
    "result",
    [
        "",
        "text",
        "5",
        '{"name": 5}',
        '{"name": "other"}',
        '{"name": "web_search"}\ncut…',
        "[" * 5_000,
    ],
)
def test_other_results_are_no_definitions(result: str) -> None:
    """Of unknown tools, cut, or of another tool."""
    assert read_definitions(result, ["web_search"]) is None
