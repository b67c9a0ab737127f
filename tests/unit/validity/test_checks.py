import re
from typing import Any

import pytest

from tests.validity.checks import (
    bad_edits,
    bad_schema,
    changed_parts,
    is_blank,
    is_name,
    is_object_json,
    listed,
    mapping,
    repeated,
    unknown_keys,
)


def test_what_is_something_else_is_empty() -> None:
    """A validator looks into anything without stumbling."""
    assert (mapping({"a": 1}), mapping([1]), mapping(None)) == ({"a": 1}, {}, {})
    assert (listed([1]), listed("a"), listed({"a": 1})) == ([1], (), ())
    assert listed((1,)) == (1,)


@pytest.mark.parametrize(
    ("value", "blank"), [("a", False), ("", True), (" \n", True), (None, True), (7, True)]
)
def test_blanks(value: object, blank: bool) -> None:
    """What says nothing is as good as no text."""
    assert is_blank(value) is blank


@pytest.mark.parametrize(
    ("value", "good"), [("ab", True), ("abc", False), ("a.", False), ("", False), (None, False)]
)
def test_names(value: object, good: bool) -> None:
    """The whole of a name is of the pattern, and it is no longer than allowed."""
    assert is_name(value, re.compile("[a-z]+"), 2) is good


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("{}", True),
        ('{"a": [1]}', True),
        ("[]", False),
        ("{", False),
        ('{"a": NaN}', False),
        ("[" * 100_000, False),
        ({}, False),
        (None, False),
    ],
)
def test_json_of_objects(value: object, good: bool) -> None:
    """Python reads more than JSON allows."""
    assert is_object_json(value) is good


def test_keys_of_another_form() -> None:
    """They would make the call fail, or be ignored."""
    assert [*unknown_keys({"a": 1, "b": 2}, ("a",))] == ["b: is no field of this form"]


@pytest.mark.parametrize("schema", [None, "object", {}, {"type": "string"}])
def test_schemas(schema: object) -> None:
    """A function takes an object."""
    assert [*bad_schema(schema, "here")] == ["here: is no JSON schema of an object"]
    assert [*bad_schema({"type": "object"}, "here")] == []


def test_repeated_values() -> None:
    """The earlier place is named too."""
    named = [("first", "a"), ("second", "b"), ("third", "a")]

    assert [*repeated(named, "id")] == ["third: the id 'a' was used before, at first"]


ONE, TWO = {"a": 1, "b": 2}, {"c": 3}


@pytest.mark.parametrize(
    ("expected", "sequences"),
    [
        ([], []),
        ([[ONE]], [[TWO, ONE]]),
        ([[ONE, TWO]], [["x", ONE, TWO, "x"]]),
        ([[ONE], [TWO]], [[ONE], [TWO]]),
        ([[ONE], [ONE]], [[ONE, ONE]]),
        ([[TWO], [ONE]], [[TWO], ["x"], ["y", ONE]]),
    ],
)
def test_parts_as_they_came(expected: list[Any], sequences: list[Any]) -> None:
    """They are together and in order, among others or alone."""
    assert [*changed_parts(expected, sequences)] == []


@pytest.mark.parametrize(
    ("expected", "sequences"),
    [
        ([[ONE]], []),
        ([[ONE]], [[{"b": 2, "a": 1}]]),
        ([[{"a": 1}]], [[{"a": 1.0}]]),
        ([[ONE, TWO]], [[TWO, ONE]]),
        ([[ONE, TWO]], [[ONE], [TWO]]),
        ([[ONE, TWO]], [[ONE, "x", TWO]]),
        ([[TWO], [ONE]], [[ONE], [TWO]]),
        ([[ONE], [ONE]], [[ONE]]),
        ([[ONE], [ONE]], [["x", "x", ONE]]),
    ],
)
def test_parts_that_were_changed(expected: list[Any], sequences: list[Any]) -> None:
    """Another order, of parts or of keys, is a change."""
    (problem,) = changed_parts(expected, sequences)

    assert re.fullmatch(r"provider_parts [01]: are not in the request as they came", problem)


@pytest.mark.parametrize(
    ("edits", "problems"),
    [
        ([{"type": "a"}], []),
        ([], ["context_management: asks for nothing"]),
        (None, ["context_management: asks for nothing"]),
        ([{"type": "a"}, {"type": " "}], ["context_management: edit 1 has no type"]),
        (["a"], ["context_management: edit 0 has no type"]),
    ],
)
def test_edits(edits: object, problems: list[str]) -> None:
    """There is at least one, and each has a type; a body without the field is fine."""
    assert list(bad_edits(edits, {"context_management": 1})) == problems
    assert list(bad_edits(edits, {})) == []
