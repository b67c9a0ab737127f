"""Laws of conversations over a store: nothing is lost, in any order of callers and steps."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Message, Row
from service.adapters.memory.store import MemoryHistory
from service.budget.estimates import SimpleTokenCounter
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.messages import is_summary
from service.conversation.stored import Conversation
from service.errors import StoreError
from tests.support import NOW

COUNTER = SimpleTokenCounter()


class Breaking(MemoryHistory):
    """Fails each third time, having stored what it was given or not."""

    def __init__(self) -> None:
        super().__init__(lambda: COUNTER, lambda: NOW)
        self.calls = 0
        self.breaks = True

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows, if this isn't the time at which that fails."""
        self.calls += 1
        if self.breaks and self.calls % 3 == 1:
            raise StoreError("refused")
        added = await super().append(owner_key, messages, conversation_id=conversation_id)
        if self.breaks and self.calls % 3 == 2:
            raise StoreError("the answer got lost")
        return added


class Gist:
    """Summarises by remembering what it read."""

    name = "fake"

    def __init__(self) -> None:
        self.read: set[str] = set()

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return next to nothing."""
        self.read |= {message.content for message in messages}
        return "Gist."


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["say", "say", "flush", "load", "compact"])),
    max_size=60,
)


def texts(conversation: Conversation) -> list[str]:
    """Return the messages as they are in memory."""
    rows = conversation.manager.get_conversation_history("c")
    return [str(row["content"]) for row in rows if not is_summary(row)]


async def follow(steps: Sequence[tuple[int, str]]) -> None:
    """Let three objects on one conversation take steps, and look at what is left."""
    store, gist = Breaking(), Gist()
    config = ContextConfig(max_tokens=800, reserve_tokens=0)
    three = [
        Conversation(store, "ann", "c", manager=ContextManager(config, token_counter=COUNTER))
        for _ in range(3)
    ]
    said: list[str] = []
    for number, (who, what) in enumerate(steps):
        conversation = three[who]
        try:
            if what == "say":
                said.append(f"{number} ".ljust(320, "x"))
                conversation.add_user_message(said[-1])
            elif what == "compact":
                await conversation.compact(gist, force=True)
            else:
                await (conversation.flush() if what == "flush" else conversation.load())
        except StoreError:
            continue
    store.breaks = False
    for conversation in (*three, *three):
        await conversation.load()

    stored = [str(row["content"]) for row in (await store.recent("ann", "c")).rows][::-1]
    assert stored == said
    for conversation in three:
        left = texts(conversation)
        assert left == [text for text in said if text in left]
        assert set(said) - set(left) <= gist.read


@given(steps=STEPS)
def test_nothing_is_lost(steps: list[tuple[int, str]]) -> None:
    """All is stored once and in order, and is in memory unless a summary replaces it."""
    asyncio.run(follow(steps))
