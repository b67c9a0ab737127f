"""History from files."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.history_files import Form, HistoryFile, as_openai, read_history
from service.errors import InvalidRequestError
from service.wire.payload import MAX_ID

CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "assistant", "content": "One."},
    {"role": "user", "content": [{"type": "text", "text": "Two?"}], "created_at": 1_700_000_000},
]


def _lines(*values: object) -> bytes:
    return "\n".join(json.dumps(value) for value in values).encode()


def test_rows_are_read_as_they_are() -> None:
    """A row keeps all that the wire knows of it, with what it lacks filled in."""
    row = {
        "id": "1",
        "run_id": "r",
        "role": "AI",
        "content": "Hi",
        "timestamp": "2026-01-01T00:00:00Z",
        "metadata": {"a": [1]},
        "conversation_id": "c",
    }
    found = read_history(_lines(row, {"role": "HUMAN", "content": None, "id": 2}))
    assert found.problems == []
    assert found.rows[0] == row
    assert found.rows[1] == {
        "id": "2",
        "run_id": None,
        "role": "HUMAN",
        "content": "",
        "timestamp": None,
        "metadata": {},
        "conversation_id": None,
    }


def test_messages_become_rows() -> None:
    """Messages of OpenAI's API keep their calls and results; instructions are left out."""
    found = read_history(json.dumps(MESSAGES).encode())
    assert (found.problems, found.instructions) == ([], 1)
    assert [row["role"] for row in found.rows] == ["HUMAN", "AI", "TOOL", "AI", "HUMAN"]
    assert found.rows[1]["metadata"] == {"tool_calls": CALLS}
    assert found.rows[2]["metadata"] == {"tool_call_id": "c"}
    assert found.rows[4]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_instructions_are_left_out_of_lines_too() -> None:
    """Rows and messages have one rule for roles, in any case of their letters."""
    found = read_history(_lines({"role": "SYSTEM"}, {"role": "developer"}, {"role": "Human"}))
    assert (found.problems, found.instructions) == ([], 2)
    assert [row["role"] for row in found.rows] == ["Human"]


def test_messages_a_line_keep_their_calls() -> None:
    """Messages of OpenAI's API are rows as well, one per line."""
    found = read_history(_lines(*MESSAGES))
    assert [row["metadata"] for row in found.rows[1:3]] == [
        {"tool_calls": CALLS},
        {"tool_call_id": "c"},
    ]


def test_a_request_gets_the_messages_as_they_are() -> None:
    """No id or run is made up, nothing is left out; only a time is put where rows have it."""
    past = read_history(json.dumps(MESSAGES).encode()).past
    assert past[:-1] == MESSAGES[:-1]
    assert past[-1] == {**MESSAGES[-1], "timestamp": "2023-11-14T22:13:20+00:00"}


@pytest.mark.parametrize("form", ["jsonl", "openai"])
@pytest.mark.parametrize("when", [1_700_000_000, "2023-11-14T22:13:20+00:00"])
@pytest.mark.parametrize("keys", [("timestamp",), ("created_at",), ("created_at", "timestamp")])
def test_times_are_read_in_every_form(form: Form, when: object, keys: tuple[str, ...]) -> None:
    """From either key, also if the other is null, as seconds or as text."""
    message = {"role": "user", "content": "a", **dict.fromkeys(keys), keys[0]: when}
    found = read_history(_lines(message), form)
    assert found.problems == []
    assert found.rows[0]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_calls_in_another_shape_are_not_lost_silently(capsys: pytest.CaptureFixture[str]) -> None:
    """A file of Anthropic's messages needs its calls rewritten; rows may hold what is not read."""
    blocks = [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]
    message = {"role": "assistant", "content": blocks}
    (problem,) = read_history(json.dumps([message]).encode()).problems
    assert "blocks of type tool_use: not read; write calls as tool_calls" in problem
    found = read_history(_lines({**message, "id": "m1"}), "jsonl")
    found.report("rows.jsonl")
    warning = "warning: tool_use and tool_result blocks aren't read: 1 row, such as m1\n"
    assert capsys.readouterr().err == warning


@pytest.mark.parametrize("form", ["jsonl", "openai"])
@pytest.mark.parametrize("key", ["timestamp", "created_at"])
def test_times_that_cannot_be_read_are_refused(form: Form, key: str) -> None:
    """In every form; without their times, rows would be in another order."""
    message = {"role": "user", "content": "a", key: "12/10/2025"}
    (problem,) = read_history(_lines({"role": "user", "content": "b"}, message), form).problems
    assert problem.startswith("line 2")
    assert problem.endswith(f'{key}: "12/10/2025" cannot be used; write ISO 8601')


@pytest.mark.parametrize("form", ["jsonl", "openai"])
@pytest.mark.parametrize("key", ["messages", "id", "run_id", "owner_key", "metadata", "created_at"])
def test_a_key_with_null_counts_as_absent(form: Form, key: str) -> None:
    """In every form, and so does one in metadata whose value is beside the content."""
    fields = {"role": "tool", "content": "1", "tool_call_id": "c"}
    absent = read_history(_lines(fields), form, owner_key="ana")
    without = read_history(_lines({**fields, key: None}), form, owner_key="ana")
    inside = read_history(_lines({**fields, "metadata": {"tool_call_id": None}}), form)

    assert absent.problems == without.problems == inside.problems == []
    assert [{**row, "id": ""} for row in without.rows] == [{**absent.rows[0], "id": ""}]
    assert inside.rows[0]["metadata"] == {"tool_call_id": "c"}


def test_each_human_message_begins_a_run() -> None:
    """Messages belong to the run of the human message before them."""
    runs = [row["run_id"] for row in read_history(json.dumps(MESSAGES).encode()).rows]
    assert len(set(runs[:4])) == 1
    assert runs[4] != runs[0]


def test_ids_are_the_same_each_time() -> None:
    """Made ids depend on place, content and conversation, so that a file can be read twice."""
    data = json.dumps(MESSAGES).encode()
    assert read_history(data) == read_history(data)
    ids = {row["id"] for row in read_history(data).rows}
    others = {row["id"] for row in read_history(data, conversation_id="c").rows}
    assert len(ids) == 5
    assert not ids & others


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (json.dumps(MESSAGES, indent=2).encode(), 5),
        (json.dumps({"messages": MESSAGES}, indent=2).encode(), 5),
        (b"\xef\xbb\xbf" + json.dumps({"messages": MESSAGES}).encode(), 5),
        (_lines(MESSAGES, {"messages": MESSAGES[1:]}), 10),
        (_lines({"role": "HUMAN", "content": "a\u2028b"}, {"role": "AI"}), 2),
        (b'\n{"role": "HUMAN"}\r\n\n{"role": "AI"}\n', 2),
        (b"", 0),
    ],
)
def test_the_form_shows_by_itself(data: bytes, rows: int) -> None:
    """Arrays, objects with messages and lines of either are distinguished."""
    found = read_history(data)
    assert (found.problems, len(found.rows)) == ([], rows)


def test_lines_of_messages_need_the_form() -> None:
    """One message per line looks like a row; with the form named it is read as a message."""
    found = read_history(_lines(*MESSAGES), "openai")
    assert (found.problems, len(found.rows)) == ([], 5)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "no JSON"),
        (b'{"role": "AI", "content": NaN}', "not a JSON number"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"3", "an object is needed"),
        (
            b'{"role": "bot", "content": "a"}',
            'role: "bot" cannot be used; roles are human, user, ai, assistant, tool',
        ),
        (b'{"content": "a"}', "role: null cannot be used"),
        (b'{"role": "AI", "content": 3}', "content: 3 cannot be used"),
        (b'{"role": "AI", "timestamp": "soon"}', 'timestamp: "soon" cannot be used'),
        (b'{"role": "AI", "metadata": []}', "metadata: [] cannot be used"),
        (b'{"role": "AI", "id": true}', "id: true cannot be used"),
        (b'{"role": "AI", "id": ""}', 'id: "" cannot be used'),
        (b'{"role": "AI", "conversation_id": 3}', "conversation_id: 3 cannot be used"),
        (b'{"role": "AI", "owner_key": "eve"}', 'owner_key: "eve" cannot be used'),
        (b'{"role": "AI", "id": "1"}', "the id '1' is used by another row"),
        (b'{"role": "' + b"x" * 99 + b'"}', f'role: "{"x" * 36}... cannot be used'),
        (b'{"role": "", "content": "a"}', 'role: "" cannot be used'),
        (b'{"role": "AI", "run_id": ""}', 'run_id: "" cannot be used'),
        (b'{"role": "AI", "Content": "a"}', "no content, but 'Content': write its text at content"),
    ],
)
def test_bad_lines_are_reported_with_their_number(line: bytes, problem: str) -> None:
    """A line that is no row is named with its number, and the others are read."""
    first = b'{"role": "HUMAN", "id": "1", "owner_key": "ana"}\n\n'
    found = read_history(first + line + b'\n{"role": "AI"}', "jsonl", owner_key="ana")
    (reported,) = found.problems
    assert reported.startswith("line 3: ")
    assert problem in reported
    assert len(found.rows) == 2


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[\n{,\n]", "the file: no JSON: Expecting property name"),
        (b'[{"role": "user"}, {"role": "robot"}]', 'line 1, message 2: role: "robot" cannot'),
        (b'[{"role": "user"}, 5]', "line 1, message 2: an object is needed"),
        (b'[{"role": "user"}]\n{"a": 1}', "line 2: neither messages nor a message"),
        (b'[{"role": "user", "timestamp": 1e300}]', "line 1, message 1: timestamp: 1e+300"),
    ],
)
def test_bad_messages_are_reported_with_their_place(data: bytes, problem: str) -> None:
    """A message that can't be read is named with its place."""
    (reported,) = read_history(data).problems
    assert reported.startswith(problem)


def test_rows_that_stand_twice_count_once() -> None:
    """Two copies of one row, as in joined exports, are one row."""
    found = read_history(_lines({"id": "1", "role": "AI"}, {"id": "1", "role": "AI"}))
    assert (found.problems, len(found.rows)) == ([], 1)


def test_many_problems_are_not_all_reported() -> None:
    """A file that is something else altogether doesn't fill the screen."""
    found = HistoryFile(rows=[], problems=["bad"] * 30, instructions=0, past=[])
    with pytest.raises(InvalidRequestError, match="and 10 more") as raised:
        found.report("a file")
    assert len(str(raised.value).splitlines()) == 22


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "role", "content", "id", "timestamp", "metadata", "run_id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=4), st.binary(max_size=8))
def test_whatever_a_file_holds_is_read_or_reported(values: list[object], tail: bytes) -> None:
    """No file is a surprise: every line is a row, a problem, or an instruction."""
    found = read_history(_lines(*values) + b"\n" + tail)
    assert all(1 <= len(row["id"]) <= MAX_ID for row in found.rows)


EXCHANGE = [
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
    rows = read_history(json.dumps(EXCHANGE).encode()).rows
    assert as_openai(rows) == EXCHANGE


def test_other_roles_are_left_out_of_messages() -> None:
    """Rows whose role the API doesn't know are no messages."""
    assert as_openai([{"id": "1", "role": "narrator", "content": "Once"}]) == []
