"""History for other programs."""

import json

from service.cli.history_files import as_lines, as_openai, read_history

MESSAGES = [
    {"role": "user", "content": "One?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "assistant", "content": "Ein überraschender Tag."},
]


def test_messages_come_out_as_they_went_in() -> None:
    """What is read from messages can be written as the same messages."""
    rows = read_history(json.dumps(MESSAGES).encode()).rows
    assert as_openai(rows) == MESSAGES


def test_lines_come_out_as_they_went_in() -> None:
    """What is written as lines reads as the same rows."""
    rows = read_history(json.dumps(MESSAGES).encode()).rows
    lines = "\n".join(as_lines(rows))
    assert read_history(lines.encode()).rows == rows
    assert "überraschender" in lines


def test_other_roles_are_left_out_of_messages() -> None:
    """Rows whose role the API doesn't know are no messages."""
    assert as_openai([{"id": "1", "role": "narrator", "content": "Once"}]) == []
