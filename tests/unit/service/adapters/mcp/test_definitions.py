"""What a server lists becomes definitions, or is refused with its place and cause."""

from typing import Any

from service.adapters.mcp.definitions import MOST_CHARS, read_definitions
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
    """What is denied goes before what is allowed; what isn't chosen is no mistake."""
    listed = [tool("read_file"), tool("read_dir"), tool("Write"), {"name": "rm"}]
    functions, refused = read(*listed, allow=["read_*", "rm"], deny=["*_dir", "rm"])
    assert [function["name"] for function in functions] == ["s__read_file"]
    assert refused == []


def test_a_title_stands_in_for_a_description() -> None:
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
    huge = tool("huge", "x" * MOST_CHARS)
    functions, refused = read(
        5, {"name": ""}, tool("a"), tool("a", "again"), tool("b", inputSchema=[]), huge
    )
    assert [function["name"] for function in functions] == ["s__a"]
    assert refused == [
        "s: tool 0: must be an object, not int",
        "s: tool 1: /name must be 1 to 128 characters",
        "s: tool 3: there is another tool 'a'",
        "s: tool 'b': /function/parameters must be a JSON schema object",
        f"s: tool 'huge': takes more than {MOST_CHARS} characters",
    ]
