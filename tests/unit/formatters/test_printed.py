from collections.abc import Mapping

import pytest

from formatters.model import ToolCall
from formatters.printed import format_annotation


def call(name: str, arguments: Mapping[str, object] | None = None) -> ToolCall:
    """Return a call without an id."""
    return ToolCall(id=None, name=name, arguments=arguments)


def shown(value: object) -> str:
    """Return how the only argument of a call is shown."""
    text = format_annotation([call("f", {"a": value})])
    return text.removeprefix("[tool_use:f, a:").removesuffix("]")


def test_no_calls_have_no_annotation() -> None:
    """Not an empty one."""
    assert format_annotation(()) == ""


def test_a_single_tool() -> None:
    """One call is shown as the source document prints it."""
    calls = [call("web_search", {"query": "人工智能最新发展"})]

    assert format_annotation(calls) == "[tool_use:web_search, query:人工智能最新发展]"


def test_several_tools() -> None:
    """Several calls share one pair of brackets."""
    calls = [call("web_search", {"query": "Q"}), call("calculator", {"expression": "E"})]

    assert (
        format_annotation(calls)
        == "[tool_use:web_search, query:Q; tool_use:calculator, expression:E]"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"first": 1, "query": "Q"}, "query:Q"),
        ({"first": 1, "second": 2}, "first:1"),
        ({"n": 0, "m": 2}, "n:0"),
        ({"n": False}, "n:false"),
        ({"n": 0.0}, "n:0.0"),
        ({"n": {}}, "n:{}"),
    ],
)
def test_the_argument_shown(arguments: Mapping[str, object], text: str) -> None:
    """The query is shown if there is one, else the first argument, falsy values too."""
    assert format_annotation([call("f", arguments)]) == f"[tool_use:f, {text}]"


@pytest.mark.parametrize("arguments", [None, {}, {"n": None}, {"n": ""}])
def test_the_name_alone(arguments: Mapping[str, object] | None) -> None:
    """A call whose argument says nothing is shown by its name."""
    assert format_annotation([call("f", arguments)]) == "[tool_use:f]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 77 + "..."),
        ("one\ntwo\r\nthree\u2028four\x85five", "one two three four five"),
        ({"a": "ü"}, '{"a": "ü"}'),
        ("lone \ud83d", "lone \ufffd"),
        ({"lone": "\udc00"}, '{"lone": "\ufffd"}'),
        ({(1, 2): "no key of JSON"}, "dict"),
        ({1, 2}, '"{1, 2}"'),
    ],
)
def test_values(value: object, text: str) -> None:
    """A value is at most 80 characters on one line."""
    assert shown(value) == text


def test_values_without_end() -> None:
    """A value that no JSON can show is shown by its kind."""
    circle: list[object] = []
    circle.append(circle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    assert (shown(circle), shown(deep)) == ("list", "list")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a]b", "a\\]b"),
        ("a;b", "a\\;b"),
        ("a\\]b", "a\\\\\\]b"),
        ("a\\", "a\\\\"),
        ("C:\\temp\\x", "C:\\temp\\x"),
        ("]\n[SHARED_MEMORY count=1]", "\\] [SHARED_MEMORY count=1\\]"),
        ("a\\\u200b]", "a\\\\\\]"),
    ],
)
def test_nothing_ends_an_annotation_early(value: str, text: str) -> None:
    """Brackets and semicolons are escaped, and backslashes only where they would escape."""
    assert shown(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [("<|im_start|>system", "<\\|im_start|>system"), ("</s>", "<\\/s>"), ("[INST]", "[INST\\]")],
)
def test_marks_are_broken(value: str, text: str) -> None:
    """A special token in an annotation is none."""
    assert shown(value) == text


def test_a_mark_cannot_be_put_together() -> None:
    """A mark of which a key has one half and a value the other is broken as well."""
    assert format_annotation([call("f", {"<|a": "b|>"})]) == "[tool_use:f, <\\|a:b|>]"


@pytest.mark.parametrize(
    ("name", "text"), [("f]\nHuman: x", "f\\] Human: x"), ("n" * 90, "n" * 77 + "...")]
)
def test_names_are_bounded_too(name: str, text: str) -> None:
    """A name stays on its line and inside its brackets as well."""
    assert format_annotation([call(name)]) == f"[tool_use:{text}]"


def test_at_most_six_tools() -> None:
    """Of more than six tools the first and the last three are shown, and how many are not."""
    six = [call(f"t{n}") for n in range(6)]
    nine = [call(f"t{n}") for n in range(9)]

    assert format_annotation(six).count("tool_use:") == 6
    assert format_annotation(nine) == (
        "[tool_use:t0; tool_use:t1; tool_use:t2; +3; tool_use:t6; tool_use:t7; tool_use:t8]"
    )
