"""Which shape a message is in."""

import pytest

from service.conversation.part_shapes import BLOCKS, PARTS
from service.conversation.shapes import ROWS, Shape, shape_of, to_blocks
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


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (said("user", "hi"), ROWS),
        (said("user", None), ROWS),
        (said("user", [{"type": "text", "text": "hi"}]), ROWS),
        (said("user", ["hi", 7, {"type": []}]), ROWS),
        (calls("1"), ROWS),
        (result("1"), ROWS),
        ({}, ROWS),
        (uses("1"), BLOCKS),
        (results("1", text="so?"), BLOCKS),
        (parts("user", "hi"), PARTS),
        ({"role": "user", "parts": None, "content": "hi"}, PARTS),
    ],
)
def test_a_message_says_by_itself_what_shape_it_has(message: Said, shape: Shape) -> None:
    """So that shapes may be mixed in a list."""
    assert shape_of(message) is shape


def test_calls_and_results_of_any_shape_can_be_had_as_blocks() -> None:
    """For counters; what has none stays the same object."""
    text = {"type": "text", "text": "well"}
    use = {"type": "tool_use", "name": "search", "input": {"q": 1}}
    plain = said("user", "hi")

    assert to_blocks(plain) is plain
    assert to_blocks(calls("1", content="well")) == said("assistant", [text, use])
    assert to_blocks(parts("model", "well", function_call())) == said("model", [text, use])
    assert to_blocks(parts("user", response(), "well")) == said(
        "user", [{"type": "tool_result", "content": '{"found":1}'}, text]
    )
    both = results("1", text="well")
    assert to_blocks(both) is both
