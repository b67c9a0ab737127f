from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from formatters.model import Message, Role, ToolCall
from formatters.rows import group_history, group_turns, is_printable, sort_messages

START = datetime(2025, 12, 10, 15, 30, tzinfo=UTC)
ROLES = {"h": Role.HUMAN, "a": Role.AI, "t": Role.TOOL, "s": Role.OTHER}


def message(spec: str) -> Message:
    """Read ``name[!call][?result][/run][@minute]``; the name's first letter is the role."""
    rest, _, minute = spec.partition("@")
    rest, _, run = rest.partition("/")
    rest, _, result = rest.partition("?")
    name, _, call = rest.partition("!")
    return Message(
        id=name,
        role=ROLES[name[0]],
        content=name,
        run_id=run or None,
        timestamp=START + timedelta(minutes=int(minute)) if minute else None,
        tool_calls=(ToolCall(id=call, name="f", arguments={}),) if call else (),
        tool_call_id=result or None,
    )


def messages(specs: str) -> list[Message]:
    """Read messages, one a word."""
    return [message(spec) for spec in specs.split()]


def ordered(specs: str) -> str:
    """Return the names in their order."""
    return " ".join(each.id for each in sort_messages(messages(specs)))


def grouped(specs: str) -> str:
    """Return the names in their turns, one turn between two bars."""
    return " | ".join(
        " ".join(m.id for m in turn.messages) for turn in group_turns(messages(specs))
    )


def printed(specs: str) -> list[str]:
    """Return the rows that a turn prints, the names of a row joined."""
    (turn,) = group_turns(messages(specs))
    return ["+".join(m.id for m in row) for row in turn.rows]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("h1@2 a1@3 h0@0 a0@1", "h0 a0 h1 a1"),
        ("h0 a0 h1", "h0 a0 h1"),
        ("h0@0 a0 h2@2 a2 h1@1 a1", "h0 a0 h1 a1 h2 a2"),
        ("h0 a0 h1@5 a1 h2@3", "h0 a0 h2 h1 a1"),
        ("a0 h1 a1", "a0 h1 a1"),
        ("a0/r t0/r a1/r h1/r a2/r", "a0 t0 a1 h1 a2"),
        ("h0@1 a0 h1 a1 h2@0", "h2 h0 a0 h1 a1"),
        ("a0@1 s0 h0@1 a1", "h0 a1 a0 s0"),
    ],
)
def test_time_orders(given: str, expected: str) -> None:
    """Messages are ordered by time; one without a time stays after the one before it."""
    assert ordered(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a/r@0 h/r@0", "h a"),
        ("t/r@0 a/r@0 h/r@0", "h t a"),
        ("a@0 h@0", "h a"),
        ("a1/r1@0 h2/r2@0 h1/r1@0", "h2 h1 a1"),
        ("a2/r2@0 h2/r2@0 a1/r1@0 h1/r1@0", "h2 a2 h1 a1"),
        ("h0@0 a0@0 a1@1 h1@1", "h0 a0 h1 a1"),
        ("h0/r@0 a0/r@0 a1/r@1 h1/r@1", "h0 a0 h1 a1"),
        ("h0@0 s@0 a0@1 h1@1", "h0 s a0 h1"),
        ("h9@0 a9@0 t0?c@1 a0!c@1 h0@1", "h9 a9 h0 t0 a0"),
    ],
)
def test_a_human_comes_first(given: str, expected: str) -> None:
    """Of one moment, a human message takes precedence over answers that could only be its own."""
    assert ordered(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "h0@0 a0@0 h1@0 a1@0",
        "h0/r@0 a0/r@0 h1/r@0 a1/r@0",
        "h0@0 a0@1 h1@1",
        "h0/r@0 a0/r@1 h1/r@1 a1/r@1",
        "a/r1@0 h/r2@0",
        "a@0 h/r@0",
        "h1/r1@0 h2/r2@0 a1/r1@0 a2/r2@0",
        "h@0 s@0 a@0 t@0",
        "h0@0 a0!c@1 t0?c@2 a1@2 h1@2 a2@3",
        "h0/r@0 a0!c/r@1 t0?c/r@2 a1/r@2 h1/r@2",
    ],
)
def test_equal_times_keep_the_order_given(given: str) -> None:
    """Of one moment, answers to what came before stay where they are."""
    assert ordered(given) == " ".join(each.id for each in messages(given))


@pytest.mark.parametrize(
    ("given", "turns"),
    [
        ("h0/r a0/r t0/r a1/r", "h0 a0 t0 a1"),
        ("h0/r a0/r h1/r a1/r", "h0 a0 | h1 a1"),
        ("h1/r1 h2/r2 a1/r1 a2/r2", "h1 a1 | h2 a2"),
        ("h0 a0 a1 h1 a2", "h0 a0 a1 | h1 a2"),
        ("h0 h1/r a0 a1/r", "h0 a0 | h1 a1"),
        ("a0/r t0/r h0/r a1/r", "a0 t0 | h0 a1"),
        ("a0 t0 h0", "a0 t0 | h0"),
        ("t0/r1 a0/r2", "t0 | a0"),
        ("h0 h1", "h0 | h1"),
        ("h0/r a0!c/r h1/r t0?c/r a1/r", "h0 a0 t0 | h1 a1"),
        ("h0 a0!c h1 a1!d t0?c t1?d", "h0 a0 t0 | h1 a1 t1"),
        ("h0 a0!c t0?c h1 t1?c", "h0 a0 t0 | h1 t1"),
        ("h0 a0!c h1 t1?c a1!c", "h0 a0 | h1 t1 a1"),
        ("h0 a0!c h1 t1 a1!d", "h0 a0 | h1 t1 a1"),
    ],
)
def test_turns(given: str, turns: str) -> None:
    """A turn is a human message with what follows in its run, up to that run's next human one."""
    assert grouped(given) == turns


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ("h/r a1/r t/r a2/r", ["h", "a1+a2"]),
        ("a1/r a2/r", ["a1+a2"]),
        ("h a1 t a2", ["h", "a1", "a2"]),
        ("a1 a2", ["a1", "a2"]),
        ("h/r t/r", ["h"]),
        ("t/r t2/r", []),
    ],
)
def test_printed_rows(given: str, rows: list[str]) -> None:
    """The answers of a run are one row, those without a run a row each, and tools print none."""
    assert printed(given) == rows


@pytest.mark.parametrize(
    ("role", "content", "calls", "shown"),
    [
        (Role.HUMAN, "Hi", 0, True),
        (Role.HUMAN, "", 0, False),
        (Role.HUMAN, " \n\t", 0, False),
        (Role.AI, "Hi", 0, True),
        (Role.AI, "", 0, False),
        (Role.AI, "\n\n", 0, False),
        (Role.AI, "", 1, True),
        (Role.TOOL, "", 0, True),
        (Role.OTHER, "Hi", 1, False),
    ],
)
def test_showable(role: Role, content: str, calls: int, *, shown: bool) -> None:
    """A message of a known role that says or calls something has a place in a turn."""
    called = (ToolCall(id=None, name="f"),) * calls

    assert is_printable(Message(id="m", role=role, content=content, tool_calls=called)) is shown


def test_count_rows() -> None:
    """Rows are counted as they are printed: five messages of two runs are four rows."""
    assert group_history(messages("h0/r1 a0/r1 a1/r1 h1/r2 a2/r2")).row_count == 4
    assert group_history(messages("s t/r h a")).row_count == 2


def keeping(specs: str) -> list[Message]:
    """Read messages that keep what is made of them."""
    return [each.keep_made() for each in messages(specs)]


def turns_of(given: list[Message]) -> list[str]:
    """Return the names in their turns; each turn has to be as of messages that were never read."""
    turns = group_history(given).turns
    fresh = [replace(each) for each in given]

    assert turns == group_history(fresh).turns
    return [" ".join(each.id for each in turn.messages) for turn in turns]


def test_other_messages_keep_nothing() -> None:
    """It would refer to them, and they would wait for the garbage collector."""
    given = messages("h0/r@0 a0/r@1")
    turn, again = (group_history(given).turns[0] for _ in range(2))

    assert turn is not again
    assert (given[0].made, turn.made) == (None, None)


def test_turns_are_made_once() -> None:
    """A turn stays the same with any messages after it."""
    given = keeping("h0/r@0 a0/r@1 h1/s@2 a1/s@3")
    first, second = group_history(given).turns

    for later in ("h2/t@4", "s2@4", "h2", "h2/t@1"):
        grown = group_history([*given, *messages(later)]).turns
        assert [turn for turn in grown if turn is first or turn is second] == [first, second]


@pytest.mark.parametrize(
    ("given", "later", "expected"),
    [
        ("h0/r@0 a0/r@1", "a1/r@2", ["h0 a0 a1"]),
        ("h0/r@0 a0/r@1", "h1/r@2", ["h0 a0", "h1"]),
        ("h0/r@0 h1/s@1", "a1/s@2 a0/r@3", ["h0 a0", "h1 a1"]),
        ("h0/r@0 a0/s@1 h1/r@2", "a1/r@3", ["h0", "a0", "h1 a1"]),
        ("h0/r@0 a0/s@1", "a1/s@2 a2/t@3", ["h0", "a0 a1", "a2"]),
        ("h0/r@0 a0/s@1", "a1/r@2", ["h0 a1", "a0"]),
        ("h0/r@0 a0/r@4", "h1/s@2 a1/s@3", ["h0 a0", "h1 a1"]),
        ("h0/r@0 a0/r@1 h1/s@1", "a1/s@1", ["h0 a0", "h1 a1"]),
        ("h0/r@5 a0/r@5", "h1/s@5 a1/s@5", ["h0 a0", "h1 a1"]),
        ("h0/r@0 a0/r", "h1/s@2", ["h0 a0", "h1"]),
        ("h0/r a0/r", "h1/s a1/s", ["h0 a0", "h1 a1"]),
        ("h0/r@0 t0/r@1 h1/r@2", "t1/r@3", ["h0", "h1"]),
        ("a0/r@0 h1/r@1", "a1/r@2", ["a0", "h1 a1"]),
    ],
)
def test_turns_grow(given: str, later: str, expected: list[str]) -> None:
    """A turn that was made before counts only if it would be made again."""
    before, added = keeping(given), keeping(later)
    turns_of(before)

    assert turns_of([*before, *added]) == expected
    assert turns_of(before + added) == expected
    assert turns_of([*added, *before]) == turns_of([*messages(later), *messages(given)])
    turns_of(before)
    turns_of([*before, *added][1:])
    turns_of([*before[1:], *added[:1]])
