"""What SPADE_LLM's document shows of its context API, as it is done here."""

from dataclasses import dataclass

from service.conversation.coordination import CoordinationContextManager
from service.conversation.manager import ContextManager
from service.conversation.messages import (
    create_assistant_message,
    create_assistant_tool_call_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
)
from service.conversation.strategies import SmartWindowSizeContext, WindowSizeContext
from tests.unit.service.conversation.managing import contents


@dataclass
class Message:
    """What is used of a SPADE message."""

    body: str | None
    sender: str
    to: str
    thread: str | None = None


def test_a_conversation() -> None:
    """Messages by the id of their conversation, and the prompt of it."""
    context = ContextManager(system_prompt="You are a helpful coding assistant", max_tokens=2000)
    context.add_message_dict({"role": "user", "content": "Help me with Python"}, "coding_session")
    context.add_assistant_message(
        "I'd be happy to help with Python!", conversation_id="coding_session"
    )

    assert contents(context.get_prompt("coding_session")) == [
        "You are a helpful coding assistant",
        "Help me with Python",
        "I'd be happy to help with Python!",
    ]


def test_agents_messages_and_tool_results() -> None:
    """Names are sent, addresses are not."""
    context = ContextManager(system_prompt="You are helpful")
    context.add_message(Message("Weather?", "user1@x/phone", "bot@x"), "user1_session")
    context.add_assistant_message(
        None, [{"id": "call_123", "name": "get_weather", "arguments": {"city": "Madrid"}}]
    )
    context.add_tool_result(
        tool_call_id="call_123",
        name="get_weather",
        result="22°C, sunny",
        conversation_id="user1_session",
    )
    _, asked, called, result = context.get_prompt("user1_session")

    assert asked == {"role": "user", "content": "Weather?", "name": "user1@x"}
    assert called["tool_calls"][0]["function"] == {
        "name": "get_weather",
        "arguments": '{"city": "Madrid"}',
    }
    assert result == {"role": "tool", "content": "22°C, sunny", "tool_call_id": "call_123"}


def test_conversations_are_listed_chosen_and_cleared() -> None:
    """One, or all of them."""
    context = ContextManager()
    context.add_user_message("a", conversation_id="user1_session")
    context.add_user_message("b", conversation_id="user2_session")
    assert context.get_active_conversations() == ["user1_session", "user2_session"]
    assert context.set_current_conversation("user1_session")
    assert len(context.get_conversation_history("user1_session")) == 1

    context.clear("user1_session")
    assert context.get_active_conversations() == ["user2_session"]
    context.clear("all")
    assert context.get_active_conversations() == []


def test_a_coordinator_and_its_subagents() -> None:
    """Share one session; others keep their threads."""
    context = CoordinationContextManager(
        coordination_session="city_ops", subagent_ids={"traffic@xmpp.local", "alerts@xmpp.local"}
    )
    context.add_coordination_command("traffic@xmpp.local", "Report.")
    context.add_message(Message("All clear.", "traffic@xmpp.local/desk", "boss@xmpp.local", "t1"))
    context.add_message(Message("Any news?", "press@elsewhere", "boss@xmpp.local", "t2"))

    assert contents(context.get_prompt("city_ops")) == [
        "[TO: traffic@xmpp.local] Report.",
        "All clear.",
    ]
    assert contents(context.get_prompt("t2")) == ["Any news?"]


def test_strategies() -> None:
    """Are given to the manager, changed on the way, and have statistics."""
    context = ContextManager(strategy=WindowSizeContext(max_messages=20))
    for number in range(50):
        context.add_user_message(str(number), conversation_id="c")
    assert len(context.get_prompt("c")) == 20

    smart = SmartWindowSizeContext(max_messages=25, preserve_initial=3, prioritize_tools=True)
    context.update_context_management(smart)
    assert contents(context.get_prompt("c"))[:4] == ["0", "1", "2", "28"]
    stats = context.get_context_stats("c")
    assert (stats["strategy"], stats["max_messages"]) == ("smart_window_size", 25)
    assert (stats["messages_in_context"], stats["messages_dropped"]) == (25, 25)


def test_types_of_messages() -> None:
    """Typed dictionaries, and functions that make them."""
    context = ContextManager()
    for message in (
        create_system_message("You are a helpful assistant"),
        create_user_message("Hello, how are you?", "user@example.com"),
        create_assistant_message("I'm doing well, thank you!"),
        create_assistant_tool_call_message([{"id": "call_123", "name": "f", "arguments": "{}"}]),
        create_tool_result_message("Weather in Madrid: 22°C, sunny", "call_123"),
    ):
        context.add_message_dict(message, "c")

    assert context.get_prompt("c") == context.get_conversation_history("c")
