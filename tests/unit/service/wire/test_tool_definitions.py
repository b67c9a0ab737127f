"""Definitions are let through or refused with every place that is wrong."""

import copy
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ToolError
from service.wire.tool_definitions import check_definition


def tool(**function: object) -> dict[str, object]:
    """Make a definition with a name and these keys of its function."""
    return {"type": "function", "function": {"name": "look_up", **function}}


def schema(**keys: object) -> dict[str, object]:
    """Make a definition with two parameters and these keys of their schema."""
    properties = {"a": {"type": "string"}, "b/c~d": {"enum": [1]}}
    return tool(parameters={"type": "object", "properties": properties, **keys})


@pytest.mark.parametrize(
    "definition",
    [
        tool(),
        tool(name="a"),
        tool(name="a.B-9_" + "x" * 58),
        tool(description="", strict=True, parameters={"type": "object"}),
        schema(),
        schema(required=["a", "b/c~d"], additionalProperties=False),
        schema(required=()),
        {**tool(), "cache_control": {"type": "ephemeral"}},
    ],
)
def test_function_definitions_are_let_through(definition: dict[str, object]) -> None:
    """What OpenAI's form allows is allowed, unknown keys too, and nothing is changed."""
    before = copy.deepcopy(definition)
    check_definition(definition, "tool")
    assert definition == before


@pytest.mark.parametrize(
    ("definition", "pointers"),
    [
        (None, [""]),
        ([tool()], [""]),
        ({}, ["/type", "/function"]),
        ({"type": "tool", "function": "look_up"}, ["/type", "/function"]),
        ({"type": "function", "function": {}}, ["/function/name"]),
        (tool(name=""), ["/function/name"]),
        (tool(name="x" * 65), ["/function/name"]),
        (tool(name="look up"), ["/function/name"]),
        (tool(name="suche_ä"), ["/function/name"]),
        (tool(name="look_up\n"), ["/function/name"]),
        (tool(name=5, description=5), ["/function/name", "/function/description"]),
        (tool(description=None), ["/function/description"]),
        (tool(parameters=None), ["/function/parameters"]),
        (tool(parameters=[]), ["/function/parameters"]),
        (tool(parameters={}), ["/function/parameters/type"]),
        (schema(type="array"), ["/function/parameters/type"]),
        (schema(properties=["a"]), ["/function/parameters/properties"]),
        (schema(properties={1: {}}), ["/function/parameters/properties"]),
        (schema(properties={"b/c~d": "string"}), ["/function/parameters/properties/b~1c~0d"]),
        (schema(required="a"), ["/function/parameters/required"]),
        (
            schema(required=["a", "unknown", 3]),
            ["/function/parameters/required/1", "/function/parameters/required/2"],
        ),
        (tool(examples={1, 2}), [""]),
        (tool(weight=float("nan")), [""]),
        (tool(description="\ud83d"), [""]),
        (MappingProxyType(tool()), [""]),
    ],
)
def test_what_is_no_definition_is_refused(definition: object, pointers: list[str]) -> None:
    """Every wrong place is named by a pointer into the definition."""
    with pytest.raises(ToolError) as caught:
        check_definition(definition, "file.yml: tool 3")

    assert [problem.pointer for problem in caught.value.problems] == pointers
    assert str(caught.value).startswith("file.yml: tool 3: ")


def test_the_message_names_place_and_cause() -> None:
    """A person reads where to look and what to change."""
    with pytest.raises(ToolError) as caught:
        check_definition(schema(required=["unknown"]), "tools.yml:4: tool 0")

    expected = "tools.yml:4: tool 0: /function/parameters/required/0 'unknown' is not a property"
    assert str(caught.value) == expected


def test_a_definition_that_holds_itself_is_refused() -> None:
    """A loop cannot be written as JSON."""
    loop = tool()
    loop["again"] = loop
    with pytest.raises(ToolError, match="cannot be written as JSON"):
        check_definition(loop, "tool")


@given(
    value=st.recursive(
        st.none() | st.text() | st.integers() | st.floats(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "function", "name", "parameters", "properties", "required"]
                ),
                inner | st.sampled_from(["function", "object"]),
            )
        ),
        max_leaves=25,
    )
)
def test_any_value_is_let_through_or_refused(value: object) -> None:
    """No value makes the check fail in another way."""
    try:
        check_definition(value, "tool")
    except ToolError as error:
        assert error.problems
