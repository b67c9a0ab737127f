"""Tests for `service.conversation.losses`: what a build warns of."""

from typing import Any

import pytest

from formatters.repair.matching import CANCELLED
from service.conversation.strategies import WindowSizeContext
from tests.unit.service.conversation.managing import WarnedLog, manager
from tests.unit.service.conversation.talk import (
    Said,
    calls,
    function_call,
    parts,
    response,
    result,
    results,
    said,
    uses,
)


def warnings(*rows: Said, **options: Any) -> list[str]:
    """Return the warnings of a build of these messages after a question."""
    log = WarnedLog()
    context = manager(logger=log, **options)
    for row in (said("user", "Where?"), *rows):
        context.add_message_dict(row)
    built = context.build()
    assert [text for kind, text in log.heard if kind == "warning"] == [*built.warnings]
    return [*built.warnings]


@pytest.mark.parametrize(
    "rows",
    [
        [calls("1", "2"), result("2"), result("1"), calls("3")],
        [calls("1"), {"role": "tool", "toolcall_id": "1", "content": "x"}],
        [calls("1"), said("user", "Go on.")],
        [calls("1"), result("1", CANCELLED), said("user", "And?"), result("1")],
        [uses("1", "2"), results("1"), results("2", text="And?"), uses("1"), results("1")],
        [parts("model", function_call()), parts("user", response())],
    ],
)
def test_what_is_sent_is_no_loss(rows: list[Said]) -> None:
    """Even if it had to be repaired."""
    assert warnings(*rows) == []


@pytest.mark.parametrize("content", ["", " ", None, [], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_an_empty_message_is_named(role: str, content: object) -> None:
    """It stays in the conversation, and no API accepts it."""
    assert warnings(said(role, content)) == ["messages[1] is empty, so it is left out"]


def test_a_message_with_more_than_text_is_not_empty() -> None:
    """Such as a refusal, or a result that is empty."""
    refusal = {**said("assistant", None), "refusal": "No."}
    assert warnings(refusal, calls("1"), result("1", "")) == []


def test_a_result_that_no_call_waits_for_is_named() -> None:
    """With the id, or with the key that it has instead of it."""
    misspelt = {"role": "tool", "toolcall_id": "9", "content": "x"}
    left = "is left out: no such call waits for one"

    assert warnings(result("9")) == [f"messages[1], a result of the call '9', {left}"]
    assert warnings(calls("1"), result("1"), result("1")) == [
        f"messages[3], a result of the call '1', {left}"
    ]
    assert warnings(misspelt) == [
        "messages[1], a result without tool_call_id, but 'toolcall_id', is left out: "
        "no call waits for one"
    ]


def test_a_result_that_is_a_part_of_its_message_is_named() -> None:
    """What else is in the message is sent."""
    assert warnings(uses("1"), results("1", "9", text="And?")) == [
        "messages[2], a result of the call '9', is left out: no such call waits for one"
    ]


def test_what_a_strategy_leaves_out_is_no_loss() -> None:
    """A result whose call is out of the window isn't named."""
    talk = [calls("1"), said("user", "Wait."), result("1"), said("user", "So?")]
    assert warnings(*talk, strategy=WindowSizeContext(2)) == []


@pytest.mark.parametrize("arguments", ["{broken", "[1]", '{"a": NaN}', [1]])
@pytest.mark.parametrize("nested", [True, False])
def test_replaced_arguments_are_named(arguments: object, nested: bool) -> None:
    """However the call was added; the conversation has it as it was given."""
    fields = {"name": "f", "arguments": arguments}
    call = {"id": "c2", "function": fields} if nested else {"id": "c2", **fields}
    warning = "messages[1], call 'c2': its arguments are no JSON object, so {} is sent"
    assert warnings({"role": "assistant", "content": None, "tool_calls": [call]}) == [warning]

    context = manager()
    context.add_user_message("Where?")
    context.add_assistant_message("", [call])
    context.add_tool_result(tool_call_id="c2", name="f", result="x")
    for _ in range(2):
        built = context.build()
        assert built.warnings == (warning,)
        assert built.messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_replaced_arguments_of_blocks_are_named() -> None:
    """Text isn't what its API has there."""
    block = {"type": "tool_use", "id": "1", "name": "f", "input": "{broken"}

    assert warnings(said("assistant", [block]), results("1")) == [
        "messages[1], call '1': its arguments are no JSON object, so {} is sent"
    ]


@pytest.mark.parametrize("arguments", [None, "", " ", {}, "{}"])
def test_a_call_without_arguments_loses_none(arguments: object) -> None:
    """Streams end with an empty text for those."""
    call = {"id": "c2", "name": "a b", "arguments": arguments}
    assert warnings({"role": "assistant", "content": None, "tool_calls": [call]}) == []
    context = manager()
    context.add_assistant_message("", [call])
    assert context.build().warnings == ()
