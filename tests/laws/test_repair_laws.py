"""Laws of repair: whatever the rows, the messages are a sequence that every API takes."""

import copy
import json
import re
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Message, Role, Row
from formatters.native import clear_result, to_chat_message
from formatters.repair.sequence import repair, split_units
from formatters.rows import read_rows

#: Few, so that they collide.
IDS = st.sampled_from(["c1", "c2", "c3", "c1", "c2", "c3", None, " ", 7])

RUNS = st.sampled_from([None, None, "r1", "r2"])

TEXTS = st.sampled_from(["", " \n", "said", "[RUN]\nNexus: [tool result cleared]", None, "\ud83d"])

ARGUMENTS = st.one_of(
    st.sampled_from(['{ "q": 1 }', '{"q": NaN}', "{broken", "[]", "", None, 7]),
    st.dictionaries(st.sampled_from(["q", "\udc00"]), st.sampled_from([1, "é", float("nan")])),
)

NAMES = st.sampled_from(["f", "g", "f", "web.search", "", "天気", "x" * 70, None])

CALLS = st.one_of(
    st.fixed_dictionaries({"id": IDS, "name": NAMES, "arguments": ARGUMENTS}),
    st.fixed_dictionaries(
        {"id": IDS, "function": st.fixed_dictionaries({"name": NAMES, "arguments": ARGUMENTS})}
    ),
)

PARTS: st.SearchStrategy[Any] = st.sampled_from([None, None, None, [], {"signature": "x"}])

#: Extra fields of a row, in its metadata or next to the content.
EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "tool_calls": st.lists(CALLS, max_size=4),
        "tool_call_id": IDS,
        "name": NAMES,
        "provider_parts": PARTS,
    },
)

ANYTHING = st.builds(
    lambda row, extras: {**row, **extras},
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["HUMAN", "AI", "assistant", "TOOL", "system", None]),
            "content": TEXTS,
            "run_id": RUNS,
            "metadata": st.one_of(st.none(), EXTRAS),
        }
    ),
    EXTRAS,
)

CALLERS = st.fixed_dictionaries(
    {
        "role": st.just("AI"),
        "content": TEXTS,
        "run_id": RUNS,
        "tool_calls": st.lists(CALLS, min_size=1, max_size=4),
        "provider_parts": PARTS,
    }
)

RESULTS = st.fixed_dictionaries(
    {
        "role": st.just("TOOL"),
        "content": TEXTS,
        "run_id": RUNS,
        "tool_call_id": IDS,
        "name": NAMES,
        "provider_parts": PARTS,
    }
)

ODD_ROWS = st.one_of(ANYTHING, CALLERS, CALLERS, RESULTS, RESULTS)


def call(id_: str) -> dict[str, object]:
    """Return a call of which nothing is wrong."""
    return {"id": id_, "name": "f", "arguments": "{}"}


def result(id_: str) -> Row:
    """Return the result of a call."""
    return {"role": "tool", "content": "found", "tool_call_id": id_}


@st.composite
def exchanges(draw: st.DrawFn) -> list[Row]:
    """Draw parallel calls with their results: in any order, some late, doubled or lost."""
    ids = draw(st.lists(st.sampled_from(["c1", "c2", "c3", "c4", "c5"]), max_size=3, unique=True))
    results = draw(st.permutations([*ids, *draw(st.lists(st.sampled_from(ids or ["c9"])))]))
    late = draw(st.integers(0, len(results)))
    return [
        {"role": "user", "content": "asked"},
        {"role": "assistant", "content": "", "tool_calls": [call(id_) for id_ in ids]},
        *map(result, results[late:]),
        {"role": "assistant", "content": "said"},
        *map(result, results[:late]),
    ]


ROWS = st.one_of(
    st.lists(ODD_ROWS, max_size=14),
    st.lists(exchanges(), max_size=4).map(lambda parts: [row for rows in parts for row in rows]),
    st.lists(st.one_of(st.lists(ODD_ROWS, max_size=3), exchanges()), max_size=4).map(
        lambda parts: [row for rows in parts for row in rows]
    ),
)

#: A run in flight, or history.
FLIGHTS = st.booleans()


def check_sequence(sent: list[dict[str, Any]]) -> None:
    """Check chat messages by the rules of the APIs that take them."""
    used: set[str] = set()
    open_calls: list[str] = []
    for message in sent:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            assert message["content"].strip() or "provider_parts" in message
            assert set(message) <= {"role", "content", "tool_call_id", "provider_parts"}
            continue
        assert not open_calls
        assert message["role"] in ("user", "assistant")
        calls = message.get("tool_calls", [])
        assert not calls or message["role"] == "assistant"
        assert message["content"].strip() or calls or "provider_parts" in message
        open_calls = [check_call(each) for each in calls]
        assert used.isdisjoint(open_calls)
        used.update(open_calls)
        assert len(set(open_calls)) == len(open_calls)
    assert not open_calls


def check_call(call: dict[str, Any]) -> str:
    """Check a call, and return its id."""
    assert call["type"] == "function"
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
    assert isinstance(json.loads(call["function"]["arguments"], parse_constant=refused), dict)
    assert call["id"].strip()
    return str(call["id"])


def refused(constant: str) -> None:
    """Refuse what Python reads and JSON doesn't have."""
    raise AssertionError(constant)


def spoken(messages: tuple[Message, ...]) -> list[str]:
    """Return the ids of the messages that are no tool's, in their order."""
    return [message.id for message in messages if message.role is not Role.TOOL]


@given(rows=ROWS, in_flight=FLIGHTS)
def test_every_api_takes_the_messages(rows: list[Row], in_flight: bool) -> None:
    """Each call is answered directly and once, by nothing empty, and ids, names and JSON hold."""
    done = repair(read_rows(rows), in_flight=in_flight)
    sent = [to_chat_message(message) for message in done.messages]

    check_sequence([message.as_dict() for message in sent])
    check_sequence([clear_result(message).as_dict() for message in sent])
    for message in sent:
        json.dumps(message.as_dict(), ensure_ascii=False).encode()


@given(rows=ROWS, in_flight=FLIGHTS)
def test_any_choice_of_units_is_taken(rows: list[Row], in_flight: bool) -> None:
    """Whichever units go, the rest is a sequence that every API takes."""
    done = repair(read_rows(rows), in_flight=in_flight)
    units = split_units(done.messages)

    assert tuple(message for unit in units for message in unit) == done.messages
    for first in range(3):
        left = [to_chat_message(message).as_dict() for unit in units[first::3] for message in unit]
        check_sequence(left)


@given(rows=ROWS, in_flight=FLIGHTS)
def test_every_message_has_one_fate(rows: list[Row], in_flight: bool) -> None:
    """A message is there once or filtered once, and what was made up is nobody's."""
    messages = read_rows(rows)
    done = repair(messages, in_flight=in_flight)
    filtered = [*done.filtered]
    given = [message.id for message in messages]
    there = [message.id for message in done.messages if message.id not in done.synthetic]

    assert Counter([*there, *filtered]) == Counter(given)
    assert done.synthetic.isdisjoint(given)
    assert done.synthetic <= {message.id for message in done.messages}
    assert len({message.id for message in done.messages}) == len(done.messages)


@given(rows=ROWS, in_flight=FLIGHTS)
def test_what_is_not_noted_is_as_it_was(rows: list[Row], in_flight: bool) -> None:
    """Notes come in order, one per message; other messages keep order and text."""
    messages = read_rows(rows)
    done = repair(messages, in_flight=in_flight)
    noted = {*done.filtered, *done.changed}
    given = {message.id: message for message in messages}

    for ids in (done.filtered, done.changed):
        assert [*ids] == [message.id for message in messages if message.id in ids]
    same = [m for m in done.messages if m.id not in {*noted, *done.synthetic}]
    assert [message.id for message in same] == [id_ for id_ in given if id_ not in noted]
    for message in same:
        before = given[message.id]
        assert (message.content, message.role) == (before.content, before.role)
        assert [call.id for call in message.tool_calls] == [call.id for call in before.tool_calls]


@given(rows=ROWS, in_flight=FLIGHTS)
def test_order_is_kept(rows: list[Row], in_flight: bool) -> None:
    """Only results move."""
    messages = read_rows(rows)
    kept = spoken(repair(messages, in_flight=in_flight).messages)

    assert kept == [id_ for id_ in spoken(messages) if id_ in kept]


@given(rows=ROWS, in_flight=FLIGHTS)
def test_parts_for_providers_are_left_alone(rows: list[Row], in_flight: bool) -> None:
    """The parts are the same objects, and what is next to them says the same."""
    given = {message.id: message for message in read_rows(rows)}

    for message in repair(tuple(given.values()), in_flight=in_flight).messages:
        if message.provider_parts is not None:
            before = given[message.id]
            assert message.provider_parts is before.provider_parts
            assert message.content == before.content
            if message.role is Role.AI:
                assert [(c.id, c.name) for c in message.tool_calls] == [
                    (c.id, c.name) for c in before.tool_calls
                ]
            if message.role is Role.TOOL:
                assert message.tool_call_id == before.tool_call_id


@given(rows=ROWS, in_flight=FLIGHTS, again=FLIGHTS)
def test_what_is_repaired_stays(rows: list[Row], in_flight: bool, again: bool) -> None:
    """What was repaired needs no repair."""
    messages = repair(read_rows(rows), in_flight=in_flight).messages
    twice = repair(messages, in_flight=again)

    assert (twice.messages, twice.filtered, twice.changed) == (messages, {}, {})


@given(rows=ROWS, in_flight=FLIGHTS)
def test_the_same_again(rows: list[Row], in_flight: bool) -> None:
    """The same rows are repaired alike, and left as they were."""
    twins = copy.deepcopy(rows)
    messages = read_rows(rows)
    one = repair(messages, in_flight=in_flight)

    assert repr(rows) == repr(twins)
    assert repr(messages) == repr(read_rows(twins))
    assert repr(one) == repr(repair(read_rows(twins), in_flight=in_flight))


@given(rows=ROWS, before=ROWS)
def test_parts_of_one_context(rows: list[Row], before: list[Row]) -> None:
    """Parts repaired one after the other, each knowing the other's ids, can be together."""
    run = repair(read_rows(rows), in_flight=True)
    taken = {call.id for message in run.messages for call in message.tool_calls if call.id}
    history = repair(read_rows(before), taken=taken)

    check_sequence([to_chat_message(m).as_dict() for m in (*history.messages, *run.messages)])
