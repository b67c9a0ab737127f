from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from formatters.model import Message, Role, ToolCall
from formatters.repair.calls import repair_calls
from formatters.repair.matching import CANCELLED, PENDING
from formatters.repair.sequence import EMPTY, NO_TEXT, RepairedSequence, repair

ROLES = {"u": Role.HUMAN, "a": Role.AI, "t": Role.TOOL, "s": Role.OTHER}


def message(spec: str) -> Message:
    """Read ``name[:ids of calls, or of the call that it answers]``.

    The name's first letter is the role; "!" in it stands for parts for a provider, "_" for no text.
    """
    name, _, ids = spec.partition(":")
    role = ROLES[name[0]]
    calls = [id_ for id_ in ids.split(",") if id_ and role is not Role.TOOL]
    return Message(
        id=name,
        role=role,
        content=" \n" if "_" in name else name,
        tool_calls=tuple(ToolCall(id=id_, name="f", arguments={}, text="{}") for id_ in calls),
        tool_call_id=(ids or None) if role is Role.TOOL else None,
        provider_parts={} if "!" in name else None,
    )


def messages(specs: str) -> list[Message]:
    """Read messages, one a word."""
    return [message(spec) for spec in specs.split()]


def outcome_of(
    specs: str, *, in_flight: bool = False, taken: Collection[str] = ()
) -> tuple[str, str]:
    """Return the ids of the messages that there are, and the notes."""
    given = messages(specs)
    done = repair(given, in_flight=in_flight, taken=taken)
    reasons = {**done.filtered, **done.changed}
    notes = " ".join(f"{each.id}={reasons[each.id]}" for each in given if each.id in reasons)
    return " ".join(each.id for each in done.messages), notes


def only(done: RepairedSequence) -> Message:
    """Return the only message."""
    (message,) = done.messages
    return message


@pytest.mark.parametrize(
    "specs",
    [
        "",
        "u a",
        "u a:c1,c2 t1:c1 t2:c2 a",
        "u1 a1:c1 t1:c1 u2 u3 a2 a3:c2 t2:c2",
        "a_:c1 t:c1",
        "u_! a_! a_!:c1 t_!:c1",
    ],
)
def test_what_is_right_stays(specs: str) -> None:
    """Of a sequence in order nothing is changed, and nothing is noted."""
    done = repair(messages(specs))

    assert done == RepairedSequence(
        messages=tuple(messages(specs)), filtered={}, changed={}, synthetic=frozenset()
    )


@pytest.mark.parametrize(
    ("specs", "kept", "notes"),
    [
        ("s u_ u a_", "u", "s=role u_=empty a_=empty"),
        ("s_:c1 u_:c1", "", "s_=role u_=empty"),
        ("t1:c1 u t2", "u", "t1=orphan_result t2=orphan_result"),
        ("a:c1 t1:c1 t2:c1", "a t1", "t2=duplicate_result"),
    ],
)
def test_what_is_left_out(specs: str, kept: str, notes: str) -> None:
    """Other roles, empty messages, and results that answer nothing are left out."""
    assert outcome_of(specs) == (kept, notes)
    assert repair(messages(specs)).changed == {}


@pytest.mark.parametrize(
    ("specs", "kept", "notes"),
    [
        ("a:c1,c2 t2:c2 t1:c1", "a t1 t2", "t1=result_moved"),
        ("a:c1 u t:c1", "a t u", "t=result_moved"),
        ("a:c1 s t:c1", "a t", "s=role"),
        ("t:c1 a:c1 u", "a t u", "t=result_moved"),
        ("t0:c9 a:c1 u t:c1", "a t u", "t0=orphan_result t=result_moved"),
        ("a1:c1 a2:c2 t2:c2 t1:c1", "a1 t1 a2 t2", "t1=result_moved"),
        ("a1:c1 a2:c2 t1:c1 t2:c2", "a1 t1 a2 t2", "t1=result_moved"),
        ("a:c1,c2,c3 t3:c3 t1:c1 t2:c2", "a t1 t2 t3", "t1=result_moved t2=result_moved"),
    ],
)
def test_results_in_the_wrong_place(specs: str, kept: str, notes: str) -> None:
    """Results are after their call, in the order of the calls, and moved ones are noted."""
    assert outcome_of(specs) == (kept, notes)


@pytest.mark.parametrize(
    ("specs", "kept", "notes"),
    [
        ("a:c1 u", "a result_of_c1 u", "a=result_missing"),
        ("a:c1,c2,c3 t:c2", "a result_of_c1 t result_of_c3", "a=result_missing"),
        ("a!:c1", "a! result_of_c1", "a!=result_missing"),
    ],
)
def test_results_that_lack(specs: str, kept: str, notes: str) -> None:
    """A call that nobody answered gets a result that says so."""
    assert outcome_of(specs) == (kept, notes)


def test_a_result_that_is_made_up() -> None:
    """It belongs to the run and the time of its call, and is distinguished from rows."""
    call = ToolCall(id="c1", name="f", arguments={}, text="{}")
    asked = Message(
        id="a",
        role=Role.AI,
        content="",
        run_id="r",
        timestamp=datetime(2025, 12, 10, tzinfo=UTC),
        tool_calls=(call,),
    )

    done = repair([asked])

    made = Message(
        id="result_of_c1",
        role=Role.TOOL,
        content=CANCELLED,
        run_id="r",
        timestamp=asked.timestamp,
        tool_call_id="c1",
        name="f",
    )
    assert done == RepairedSequence(
        messages=(asked, made),
        filtered={},
        changed={"a": "result_missing"},
        synthetic=frozenset({"result_of_c1"}),
        placeholders=frozenset({"result_of_c1"}),
    )


def test_made_up_ids_are_nobodys() -> None:
    """A row that has the id of a result that would be made keeps it."""
    rows = [replace(message("u"), id="result_of_c1"), message("a:c1,c1_")]

    done = repair(rows)

    assert done.synthetic == {"result_of_c1_", "result_of_c1__"}
    assert len({each.id for each in done.messages}) == 4


@pytest.mark.parametrize(
    ("specs", "kept", "notes"),
    [
        ("a:c1", "a result_of_c1", "a=result_pending"),
        ("a:c1,c2 t:c2", "a result_of_c1 t", "a=result_pending"),
        ("a:c1 a2 u_ s", "a result_of_c1 a2", "a=result_pending u_=empty s=role"),
        ("a:c1 u", "a result_of_c1 u", "a=result_missing"),
        ("a1:c1 a2:c2", "a1 result_of_c1 a2 result_of_c2", "a1=result_missing a2=result_pending"),
        ("a1:c1 a2!:c1", "a1 result_of_c1", "a1=result_pending a2!=opaque_conflict"),
        ("a", "a", ""),
    ],
)
def test_a_run_in_flight(specs: str, kept: str, notes: str) -> None:
    """The last calls of a run are pending, unless a human has spoken since."""
    assert outcome_of(specs, in_flight=True) == (kept, notes)


def test_pending_and_cancelled_differ() -> None:
    """The text says whether a result can still come."""
    for in_flight, content in ((True, PENDING), (False, CANCELLED)):
        _, made = repair(messages("a:c1"), in_flight=in_flight).messages
        assert made.content == content


def test_renamed_calls() -> None:
    """The results of a call go by its new id."""
    done = repair(messages("a1:c t1:c a2:c t2:c"))
    _, first, called, second = done.messages

    assert first.tool_call_id == "c"
    assert second.tool_call_id == called.tool_calls[0].id != "c"
    assert done.changed == {"a2": "call_renamed", "t2": "call_renamed"}


def test_ids_of_other_parts() -> None:
    """Ids that another part of the context has are used."""
    assert outcome_of("a:c t:c", taken={"c"}) == ("a t", "a=call_renamed t=call_renamed")


def test_matched_results() -> None:
    """A result without an id gets that of the call that it answers."""
    called, result = repair(messages("a:c1 t")).messages

    assert (called, result.tool_call_id) == (message("a:c1"), "c1")
    assert outcome_of("a:c1 t") == ("a t", "t=result_matched")


def test_mended_calls() -> None:
    """What is wrong with a call by itself is mended."""
    call = ToolCall(id="c1", name="a b")
    done = repair([replace(message("a"), tool_calls=(call,)), message("t:c1")])

    mended = ToolCall(id="c1", name="a_b_c8687a08", arguments={}, text="{}")
    assert done.messages[0].tool_calls == (mended,)
    assert done.changed == {"a": "arguments_mended"}


def test_empty_results() -> None:
    """A tool that said nothing has answered."""
    assert outcome_of("a:c1 t_:c1") == ("a t_", "t_=empty_result")
    caller, result = messages("a:c1 t_:c1")
    assert repair([caller, result]).messages[1].content == EMPTY
    # one that has something else says so
    assert repair([caller, replace(result, partial=True)]).messages[1].content == NO_TEXT


@pytest.mark.parametrize("spec", ["u:c1", "u!:c1"])
def test_stray_calls(spec: str) -> None:
    """Only AI messages call tools."""
    done = repair(messages(spec))

    assert only(done).tool_calls == ()
    assert done.changed == {spec[:-3]: "stray_calls"}


def test_stray_calls_of_a_result() -> None:
    """A tool calls none."""
    stray = replace(message("t:c1"), tool_calls=message("a:c2").tool_calls)
    done = repair([message("a:c1"), stray])

    assert done.messages == (message("a:c1"), message("t:c1"))
    assert done.changed == {"t": "stray_calls"}


def test_stray_ids_of_calls() -> None:
    """Only results answer calls; elsewhere an id of a call means nothing."""
    done = repair([replace(message("a"), tool_call_id="c1")])

    assert (only(done), done.changed) == (message("a"), {})


@pytest.mark.parametrize(
    ("specs", "kept", "notes"),
    [
        (
            "a1:c t1:c a2!:c,d u t2:c t3:d",
            "a1 t1 u",
            "a2!=opaque_conflict t2=opaque_conflict t3=opaque_conflict",
        ),
        ("a1:c t1:c a2:c,d t2!:c t3:d", "a1 t1 a2 {} t3", "a2=result_missing t2!=opaque_conflict"),
        ("a:c1 u t!:c1", "a t! u", "t!=result_moved"),
        ("a:c1 t!", "a result_of_c1", "a=result_missing t!=orphan_result"),
    ],
)
def test_parts_for_the_provider(specs: str, kept: str, notes: str) -> None:
    """Messages that have any are moved, or left out, but not changed; nor are others for them."""
    done = repair(messages(specs))
    given = {each.id: each for each in messages(specs)}

    assert outcome_of(specs) == (kept.format(*done.synthetic), notes)
    assert all(given[m.id] == m for m in done.messages if m.provider_parts is not None)


@pytest.mark.parametrize(
    ("specs", "notes"),
    [
        ("a1:c t1:c a2:c", "a2=result_missing"),
        ("a1:c t1:c a2:c u t_:c", "a2=call_renamed t_=result_moved"),
        ("a1:c t1:c a2:c t_:c", "a2=call_renamed t_=call_renamed"),
        ("a:c u t_", "t_=result_matched"),
    ],
)
def test_one_note_a_message(specs: str, notes: str) -> None:
    """Of several reasons the most specific one is noted."""
    assert outcome_of(specs)[1] == notes


def test_the_messages_given_are_left_alone() -> None:
    """Repair returns messages of its own where it changes any."""
    given = messages("a1:c,c u t_:c s t:c")

    repair(given)

    assert given == messages("a1:c,c u t_:c s t:c")


def test_calls_are_mended_in_their_own_module() -> None:
    """What `mended_calls` says of a message is what is sent."""
    given = messages("a1:c,c t:c")

    assert repair(given).messages[0].tool_calls == repair_calls(given, ())[0].calls


def test_calls_that_the_service_answers_have_their_result() -> None:
    """Nothing is noted of them; an existing result takes precedence."""

    def answer(message: Message, call: ToolCall) -> str | None:
        return f"{message.id} {call.id}" if call.id != "c3" else None

    done = repair(messages("u a1:c1,c3 a2:c2 t2:c2"), in_flight=False, answer_call=answer)

    results = [each.content for each in done.messages if each.role is Role.TOOL]
    assert results == ["a1 c1", CANCELLED, "t2"]
    assert done.changed == {"a1": "result_missing"}
    assert len(done.synthetic) == 2
    assert done.placeholders == {each.id for each in done.messages if each.content == CANCELLED}
