"""What a server lists becomes definitions, or is refused with its place and cause."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.adapters.mcp.definitions import MAX_DEFINITION_CHARS, offered_names, read_definitions
from service.config.content import McpServerSettings
from tests.tool_server import tool


def read(*listed: object, **settings: Any) -> tuple[list[Any], list[str]]:
    """Return the functions of what is listed, and what is refused."""
    server = McpServerSettings(name="s", command="x", **settings)
    found = read_definitions(listed, server)
    return [definition["function"] for definition in found.tools], list(found.refused)


def test_order_is_that_of_names() -> None:
    """A server that lists its tools in another order changes nothing."""
    assert read(tool("b"), tool("a")) == read(tool("a"), tool("b"))


def test_patterns_choose_by_the_servers_own_names() -> None:
    """Denied names take precedence over allowed ones; tools that aren't chosen are no error."""
    listed = [tool("read_file"), tool("read_dir"), tool("Write"), {"name": "rm"}]
    functions, refused = read(*listed, allow=["read_*", "rm"], deny=["*_dir", "rm"])
    assert [function["name"] for function in functions] == ["s__read_file"]
    assert refused == []


def test_a_title_replaces_a_missing_description() -> None:
    """The tool's own before that of its annotations; none is none."""
    bare = {"name": "a"}
    titled = {**bare, "annotations": {"title": "From annotations"}}
    assert read(bare)[0] == [{"name": "s__a"}]
    assert read(titled)[0][0]["description"] == "From annotations"
    assert read({**titled, "title": "Its own"})[0][0]["description"] == "Its own"


def test_the_dialect_of_a_schema_is_left_out() -> None:
    """The rest of the schema stays as it is."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "x": 1}
    ((function,), _) = read(tool("a", inputSchema=schema))
    assert function["parameters"] == {"type": "object", "x": 1}


def test_what_is_no_tool_is_refused() -> None:
    """With its place in the listing, or its name, and the cause; others stay."""
    huge = tool("huge", "x" * MAX_DEFINITION_CHARS)
    functions, refused = read(
        5, {"name": ""}, tool("a"), tool("a", "again"), tool("b", inputSchema=[]), huge
    )
    assert [function["name"] for function in functions] == ["s__a"]
    assert refused == [
        "s: tool 0: must be an object, not int",
        "s: tool 1: /name must be 1 to 128 characters",
        "s: tool 3: there is another tool 'a'",
        "s: tool 'b': /function/parameters must be a JSON schema object",
        f"s: tool 'huge': takes more than {MAX_DEFINITION_CHARS} characters",
    ]


VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def test_a_name_that_every_provider_takes_stays() -> None:
    """It is after the server's and two ``_``."""
    assert offered_names("git", ["git_status"]) == {"git_status": "git__git_status"}


def test_other_characters_become_underscores() -> None:
    """Where that makes two names alike, the changed one gets a hash, in whatever order."""
    assert offered_names("a", ["x.y/z"]) == {"x.y/z": "a__x_y_z"}
    names = offered_names("a", ["x.y", "x_y", "x/y"])
    assert names["x_y"] == "a__x_y"
    assert len(set(names.values())) == 3
    assert offered_names("a", ["x/y", "x_y", "x.y"]) == names


def test_a_long_name_is_cut_and_gets_a_hash() -> None:
    """It depends on the name alone."""
    (name,) = offered_names("s", ["n" * 100]).values()
    assert len(name) == 64
    assert offered_names("s", ["n" * 100, "m"])["n" * 100] == name


@given(st.lists(st.text(min_size=1, max_size=128), unique=True, max_size=8))
def test_any_names_are_valid_and_distinct(names: list[str]) -> None:
    """Whatever characters a server uses."""
    offered = offered_names("server", names)
    assert list(offered) == names
    assert len(set(offered.values())) == len(names)
    assert all(VALID.fullmatch(name) for name in offered.values())
