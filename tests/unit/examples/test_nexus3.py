"""What NEXUS3's document shows of its `ContextManager`, as it is done here."""

import asyncio
from dataclasses import dataclass, field

from prompts.summary import create_summary_message
from service.adapters.memory.store import MemoryHistory
from service.adapters.tokens.tokenizers import TiktokenCounter, get_token_counter
from service.budget.estimates import SimpleTokenCounter
from service.conversation.compaction import (
    CompactionResult,
    build_summarize_prompt,
    select_messages_for_compaction,
)
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.stored import Conversation
from service.ports.services import TokenCounter
from tests.support import NOW, SEARCH
from tests.unit.service.conversation.managing import Log, Summariser, contents


def test_basic_context_management() -> None:
    """Set a prompt, add messages, build them for a call."""
    context = ContextManager(ContextConfig(max_tokens=8000, reserve_tokens=2000))
    context.set_system_prompt("You are a helpful assistant.")
    context.set_tool_definitions([SEARCH])

    context.add_user_message("Hello!")
    context.add_assistant_message("Hi there!")

    messages = context.build_messages()
    tools = context.get_tool_definitions()

    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert tools == [SEARCH]


def test_token_usage() -> None:
    """Look at what is used, and whether something has to go."""
    context = ContextManager(max_tokens=40)
    context.add_user_message("Tell me about boats. " * 10)
    usage = context.get_token_usage()

    assert usage["total"] > usage["budget"] == usage["available"] == 40
    assert usage["remaining"] == 0
    assert context.is_over_budget()


def test_counters() -> None:
    """The exact one, an estimate, and another encoding."""
    assert get_token_counter().name == "o200k_base"
    assert isinstance(get_token_counter(use_tiktoken=False), SimpleTokenCounter)
    counter = TiktokenCounter(encoding_name="cl100k_base")
    assert counter.count("Hello, world!") == 4

    context = ContextManager(token_counter=counter)
    context.add_user_message("Hello, world!")
    assert context.get_token_usage()["messages"] == 8


def test_a_session_logger_hears_all() -> None:
    """Prompt and messages are logged as they are set."""
    logger = Log()
    context = ContextManager(logger=logger)
    context.set_system_prompt("You are helpful.")
    context.add_user_message("Hello!")

    assert logger.heard == [("system", "You are helpful."), ("user", "Hello!")]


def test_compaction_by_hand() -> None:
    """Choose what is summarised, have it summarised, and put the summary in its place."""
    context, counter = ContextManager(ContextConfig(max_tokens=6000)), get_token_counter()
    for number in range(6):
        context.add_user_message(f"{number}: " + "word " * 200)
    old, recent = select_messages_for_compaction(
        messages=context.messages,
        token_counter=counter,
        available_budget=2000,
        recent_preserve_ratio=0.25,
    )
    assert "USER: 3: word" in build_summarize_prompt(old)
    summary = create_summary_message("Four messages of words.")
    context.apply_compaction(
        summary_message=summary, preserved_messages=recent, new_system_prompt="Fresh."
    )

    assert (len(old), len(recent)) == (4, 2)
    assert contents(context.get_prompt())[:2] == ["Fresh.", summary["content"]]


async def test_compaction_between_turns() -> None:
    """Ask whether it is time; what is made of it says what it saved."""
    context = ContextManager(ContextConfig(max_tokens=3000, reserve_tokens=1000))
    for number in range(12):
        context.add_user_message(f"{number}: " + "word " * 150)

    assert context.should_compact()
    result = await context.compact(Summariser("Twelve messages of words."))

    assert isinstance(result, CompactionResult)
    assert result.committed
    assert result.new_token_count < result.original_token_count
    assert not context.should_compact()


# --- a pool ----------------------------------------------------------------------------------


@dataclass
class Pool:
    """Agents that share a counter and a prompt; each has a context of its own."""

    prompt: str
    counter: TokenCounter = field(default_factory=get_token_counter)
    agents: dict[str, ContextManager] = field(default_factory=dict)

    def create(self, agent_id: str, system_prompt: str | None = None) -> ContextManager:
        """Add an agent, with a prompt of its own if it has one."""
        context = ContextManager(
            system_prompt=self.prompt if system_prompt is None else system_prompt,
            token_counter=self.counter,
        )
        context.add_session_start_message({"Agent": agent_id})
        self.agents[agent_id] = context
        return context


def test_agents_of_a_pool_have_histories_of_their_own() -> None:
    """And prompts, where they are given any."""
    pool = Pool(prompt="You are an agent.")
    worker, scout = pool.create("worker-1"), pool.create("scout", "You look around.")
    worker.add_user_message("Dig.")

    assert contents(worker.get_prompt())[0] == "You are an agent."
    assert contents(scout.get_prompt())[0] == "You look around."
    assert contents(worker.messages)[1:] == ["Dig."]
    assert contents(scout.messages)[1:] == []
    assert str(scout.messages[0]["content"]).endswith("| Agent: scout]")
    assert pool.agents["worker-1"].get_token_usage()["total"] > scout.get_token_usage()["total"]


async def test_agents_of_a_pool_can_share_a_store() -> None:
    """Each under its own id; a conversation of two tasks loses nothing."""
    store = MemoryHistory(get_token_counter, lambda: NOW)
    worker, scout = (Conversation(store, "ann", name) for name in ("worker-1", "scout"))

    async def work() -> None:
        worker.add_user_message("Dig.")
        await worker.build_messages()

    await asyncio.gather(work(), work(), scout.load())
    again = Conversation(store, "ann", "worker-1")
    await again.load()

    assert contents(again.manager.get_conversation_history("worker-1")) == ["Dig.", "Dig."]
    assert scout.manager.get_conversation_history("scout") == []
