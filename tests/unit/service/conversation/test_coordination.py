"""Tests for `service.conversation.coordination`."""

from dataclasses import dataclass

import pytest

from service.conversation.coordination import CoordinationContextManager
from tests.unit.service.conversation.managing import SIMPLE, contents
from tests.unit.service.conversation.talk import said


@dataclass
class Spade:
    """A message between agents."""

    sender: str | None
    to: str | None
    thread: str | None = None
    body: str | None = "Hello"


def city() -> CoordinationContextManager:
    """Return the context of a coordinator with two subagents."""
    return CoordinationContextManager(
        coordination_session="city_ops",
        subagent_ids={"traffic@x", "alerts@x/desk"},
        system_prompt="Coordinate.",
        token_counter=SIMPLE,
    )


@pytest.mark.parametrize(
    "message",
    [
        Spade("traffic@x", "boss@x"),
        Spade("traffic@x/phone", "boss@x", "t1"),
        Spade("boss@x", "alerts@x", "t2"),
        Spade("boss@x", "alerts@x/desk"),
    ],
)
@pytest.mark.parametrize("named", [None, "elsewhere"])
def test_subagents_share_the_session(message: Spade, named: str | None) -> None:
    """Whatever thread or conversation a message came with, and whatever the resource."""
    context = city()
    context.add_message(message, named)

    assert contents(context.get_conversation_history("city_ops")) == ["Hello"]
    assert context.get_active_conversations() == ["city_ops"]


@pytest.mark.parametrize(
    ("message", "named", "conversation"),
    [
        (Spade("a", "b"), None, "a_b"),
        (Spade("a", "b", "t1"), None, "t1"),
        (Spade("a", "b", "t1"), "mine", "mine"),
        (Spade(None, None), None, "_"),
        (Spade("traffic@y", "b", "t1"), None, "t1"),
    ],
)
def test_outsiders_keep_their_own(message: Spade, named: str | None, conversation: str) -> None:
    """The conversation that is named, else their thread, else one for the pair."""
    context = city()
    context.add_message(message, named)

    assert context.get_active_conversations() == [conversation]


def test_dictionaries_go_by_the_agents_that_they_name() -> None:
    """One that names none goes to the given conversation."""
    context = city()
    context.add_message_dict({**said("user", "a"), "sender": "traffic@x/phone"}, "t1")
    context.add_message_dict({**said("user", "b"), "receiver": "alerts@x"}, "t1")
    context.add_message_dict(said("user", "c"), "t1")

    assert contents(context.get_conversation_history("city_ops")) == ["a", "b"]
    assert contents(context.get_conversation_history("t1")) == ["c"]


def test_commands_are_part_of_the_session() -> None:
    """Each says whom it is for."""
    context = city()
    context.add_coordination_command("traffic@x/phone", "go")

    assert context.get_prompt("city_ops") == [
        said("system", "Coordinate."),
        {"role": "user", "content": "[TO: traffic@x/phone] go", "name": "traffic@x"},
    ]
    context.add_coordination_command("traffic@x", "stop", "elsewhere")
    assert contents(context.get_conversation_history("elsewhere")) == ["[TO: traffic@x] stop"]


def test_what_is_no_message_is_refused() -> None:
    """As by any manager."""
    with pytest.raises(TypeError, match="a message is a mapping"):
        city().add_message_dict("hi")  # type: ignore[arg-type] # as somebody may write it
