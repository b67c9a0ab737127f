"""A conversation in process, over each store."""

from collections.abc import AsyncIterator

import pytest

from service.budget.estimates import HeuristicTokenCounter
from service.conversation.manager import ContextManager
from service.conversation.messages import create_assistant_tool_call_message
from service.conversation.stored import Conversation
from service.ports.stores import HistoryStore
from tests.integration.conftest import OpenStore
from tests.support import NOW


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[HistoryStore]:
    """Open a store of each adapter."""
    async with open_store(HeuristicTokenCounter) as stores:
        yield stores.history


def talk(store: HistoryStore) -> Conversation:
    """Return the same conversation, as another process would have it."""
    return Conversation(store, "ann", "trip", manager=ContextManager(clock=lambda: NOW))


async def test_it_is_the_same_for_the_next_process(store: HistoryStore) -> None:
    """In shapes with calls, blocks and parts, and in order."""
    first = talk(store)
    first.add_user_message("Find x.", name="ann")
    first.add_assistant_message("Let me look.", [{"id": "c1", "name": "f", "arguments": {"q": 1}}])
    first.add_tool_result(tool_call_id="c1", name="f", result="found")
    for row in (
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c2", "name": "f", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "y"}]},
        {"role": "model", "parts": [{"text": "It is there."}]},
        create_assistant_tool_call_message([{"id": "c3", "name": "g", "arguments": '{"a":1}'}]),
    ):
        first.manager.add_message_dict(row, "trip")
    sent = await first.build_messages()

    assert len(sent) == 7
    assert await talk(store).build_messages() == sent


async def test_several_at_once_lose_nothing(store: HistoryStore) -> None:
    """Each sees in the end what all have said."""
    several = [talk(store) for _ in range(3)]
    for number in range(4):
        for place, conversation in enumerate(several):
            conversation.add_user_message(f"{place}.{number}")
            await conversation.flush()
    for conversation in several:
        await conversation.load()

    histories = [
        [row["content"] for row in each.manager.get_conversation_history("trip")]
        for each in several
    ]
    assert len(histories[0]) == 12
    assert histories[0] == histories[1] == histories[2]
