from collections.abc import Mapping
from math import nan
from typing import Any, cast

import pytest

from formatters.model import Message, Role, ToolCall
from formatters.repair.calls import repair_calls

DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"d": DEEP}


def call(id_: str | None = "c", name: str = "f", text: str | None = "{}") -> ToolCall:
    """Return a call of which nothing is wrong but what is said."""
    return ToolCall(id=id_, name=name, arguments={}, text=text)


def caller(*calls: ToolCall, id_: str = "a", parts: object = None) -> Message:
    """Return an AI message with calls."""
    return Message(id=id_, role=Role.AI, content="", tool_calls=calls, provider_parts=parts)


def mended(*messages: Message, taken: tuple[str, ...] = ()) -> list[tuple[list[str | None], str]]:
    """Return the ids of each message's calls, and what was done to them."""
    found = repair_calls(messages, taken).values()
    return [([c.id for c in each.calls], " ".join(sorted(each.reasons))) for each in found]


def test_what_is_right_stays() -> None:
    """Calls in order are the same; other messages have none, whatever they say."""
    human = Message(id="u", role=Role.HUMAN, content="", tool_calls=(call(),))
    good = caller(call("c1"), call("c2", text='{ "n":1 }'))

    (only,) = repair_calls([human, good, caller()], ()).items()

    assert only[0] == 1
    assert (only[1].calls, only[1].reasons) == (good.tool_calls, frozenset())


@pytest.mark.parametrize("id_", [None, "", " ", "used", "taken"])
def test_new_ids(id_: str | None) -> None:
    """A call without an id, or with one that is used, gets one that the message always has."""
    before = caller(call("used"), id_="b")

    *_, (ids, reasons) = mended(before, caller(call(id_)), taken=("taken",))
    *_, again = mended(caller(call(None)))

    assert reasons == "call_renamed"
    assert again == (ids, reasons)
    assert ids[0]
    assert ids[0].startswith("call_")
    assert len(ids[0]) <= 40


@pytest.mark.parametrize(
    "id_",
    [
        "<|im_start|>",
        "</human_input>",
        "[MOOD]",
        "【MOOD】",
        " Пользователь:1",
        "a\nb",
        "a\u2028b",
        "\x1b[1m",
        "a\x00",
    ],
)
def test_ids_that_could_be_read_as_structure(id_: str) -> None:
    """Such a call gets another id; one that its provider knows by it can't be sent."""
    opaque = caller(call(id_), id_="b", parts=[{}])

    (ids, reasons), (left, conflict) = mended(caller(call(id_)), opaque)

    assert (len(ids[0] or ""), reasons) == (len("call_") + 24, "call_renamed")
    assert (left, conflict) == ([], "opaque_conflict")


@pytest.mark.parametrize("id_", ["functions.search:0", "a|b", "call 1", "日本", "a/b+c=", "#1"])
def test_ids_of_other_providers_stay(id_: str) -> None:
    """Signs that no structure needs are no reason to change an id."""
    assert mended(caller(call(id_))) == [([id_], "")]


def test_new_ids_are_new() -> None:
    """No id that is made is one that a later call came with."""
    ((first,), _), *_ = mended(caller(call(None)))
    made, given = mended(caller(call(None)), caller(call(first), id_="b"))

    assert given == ([first], "")
    assert made[0] != [first]


def test_new_ids_are_not_taken_elsewhere() -> None:
    """Nor one that another part of the context has."""
    ((first,), _), *_ = mended(caller(call(None)))
    ((second,), _), *_ = mended(caller(call(None)), taken=(str(first),))

    assert second != first


def test_messages_of_one_id() -> None:
    """Even where two messages have one id, their calls differ."""
    (first, _), (second, _) = mended(caller(call(None)), caller(call(None)))

    assert first != second
    assert {len(id_ or "") for id_ in (*first, *second)} == {len("call_") + 24}


def test_an_id_is_made_of_any_id() -> None:
    """Even of one that no encoding takes."""
    ((ids, reasons),) = mended(caller(call(None), id_="\ud83d"))

    assert (len(ids[0] or ""), reasons) == (len("call_") + 24, "call_renamed")


def test_one_id_twice_in_a_message() -> None:
    """The first of two calls keeps the id."""
    (((first, second), _),) = mended(caller(call("c"), call("c")))

    assert first == "c"
    assert second != "c"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web_search", "web_search"),
        ("A-1", "A-1"),
        ("functions.search", "functions_search_41573d77"),
        ("f\n", "f__092fcfbb"),
        ("", "unknown"),
    ],
)
def test_names(name: str, expected: str) -> None:
    """A call gets the name under which its tool is offered."""
    (found,) = repair_calls([caller(call(name=name))], ()).values()

    assert found.calls[0].name == expected
    assert found.reasons == ({"name_mended"} if name != expected else set())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "{}"),
        ({"query": "Grüße", "n": [1, None]}, '{"query":"Grüße","n":[1,null]}'),
        ({"query": "\ud83d"}, '{"query":"\ufffd"}'),
        ({1: True}, '{"1":true}'),
    ],
)
def test_arguments(arguments: Mapping[str, object], text: str) -> None:
    """Arguments that came as an object are written as JSON without blanks."""
    given = ToolCall(id="c", name="f", arguments=arguments)
    (found,) = repair_calls([caller(given)], ()).values()

    assert found.calls[0] == ToolCall(id="c", name="f", arguments=arguments)
    assert found.calls[0].text == text
    assert not found.reasons


@pytest.mark.parametrize("arguments", [None, {"n": nan}, {"n": object()}, {(1, 2): 3}, DEEP])
def test_arguments_that_are_none(arguments: object) -> None:
    """What is no JSON object becomes an empty one."""
    given = ToolCall(id="c", name="f", arguments=cast("Mapping[str, object] | None", arguments))
    (found,) = repair_calls([caller(given)], ()).values()

    assert found.calls == (ToolCall(id="c", name="f", arguments={}),)
    assert found.calls[0].text == "{}"
    assert found.reasons == {"arguments_mended"}


@pytest.mark.parametrize(
    "wrong", [call(None), call("used"), call(name=""), ToolCall(id="c", name="f")]
)
def test_parts_for_the_provider(wrong: ToolCall) -> None:
    """A message whose parts repeat the calls loses them all rather than differ from its parts."""
    *_, found = mended(caller(call("used"), id_="b"), caller(call("c1"), wrong, parts=[]))

    assert found == ([], "opaque_conflict")


def test_a_message_that_is_lost_uses_no_id() -> None:
    """The ids of a message that can't be kept are free for the next."""
    *_, found = mended(caller(call("c"), call(None), parts=[]), caller(call("c"), id_="b"))

    assert found == (["c"], "")


def test_parts_for_the_provider_may_lack_text() -> None:
    """To write arguments as text changes nothing that a provider knows."""
    (found,) = repair_calls([caller(call(text=None), parts=[])], ()).values()

    assert [made.text for made in found.calls] == ["{}"]


def test_an_id_may_have_forty_characters() -> None:
    """Up to OpenAI's maximum."""
    assert mended(caller(call("c" * 40))) == [(["c" * 40], "")]


def test_a_long_id_gets_a_shorter_one() -> None:
    """OpenAI takes forty characters; what a provider wants back stays as it is."""
    calls = (ToolCall(id="c" * 41, name="f", text="{}", arguments={}),)
    plain = Message(id="a", role=Role.AI, content="", tool_calls=calls)
    opaque = Message(id="b", role=Role.AI, content="", tool_calls=calls, provider_parts=[])

    mended = repair_calls([plain, opaque], ())

    assert len(mended[0].calls[0].id or "") < 40
    assert mended[0].reasons == {"call_renamed"}
    assert mended[1].calls == calls
