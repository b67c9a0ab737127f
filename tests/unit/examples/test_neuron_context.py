"""What neuron-context's document shows, as it is done here."""

from collections.abc import Sequence

from formatters.model import Message, Row
from formatters.providers.context_management import ContextEdit, ContextManagement
from prompts.system_prompt import (
    ContextSection,
    EveryNTurns,
    OnTokenThreshold,
    PersistentContext,
    SystemInjector,
)
from service.budget.estimates import HeuristicTokenCounter
from service.conversation.strategies import (
    CompositeStrategy,
    SlidingWindowStrategy,
    SummarizationStrategy,
    ToolResultClearingStrategy,
)

TALK = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is Rust?"},
    {"role": "assistant", "content": "A systems programming language."},
    {"role": "user", "content": "How about memory safety?"},
    {"role": "assistant", "content": "Ownership and borrowing."},
    {"role": "user", "content": "What about async?"},
    {"role": "assistant", "content": "Futures, with async and await."},
]


class Provider:
    """A summarizer that notes what it is asked."""

    name = "provider"

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a short text."""
        self.asked.append(len(messages))
        return "They spoke of Rust."


async def test_the_quick_example() -> None:
    """Estimate, ask, act: what is left are system messages and the newest of the others."""
    strategy = SlidingWindowStrategy(10, 100_000)
    tokens = strategy.token_estimate(TALK)

    assert not strategy.should_compact(TALK, tokens)
    assert strategy.should_compact(TALK, 100_001)
    assert await strategy.compact(TALK) == TALK


async def test_before_and_after() -> None:
    """Of seven messages the system's stays, and the last two."""
    compacted = await SlidingWindowStrategy(2, 500).compact(TALK)

    assert compacted == [TALK[0], *TALK[-2:]]


async def test_strategies_in_a_row() -> None:
    """Results are cleared first; as that is not enough, old messages go too."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    files: list[Row] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "line\n" * 500, "tool_call_id": "c1"},
    ]
    messages: list[Row] = [*TALK, *files, {"role": "user", "content": "Thanks"}]
    cheap = [ToolResultClearingStrategy(0, 100), SlidingWindowStrategy(3, 100)]

    cleared = await CompositeStrategy(cheap, 500).compact(messages)
    assert [m["content"] for m in cleared[-2:]] == ["[tool result cleared]", "Thanks"]
    assert len(cleared) == len(messages)
    assert len(await CompositeStrategy(cheap, 50).compact(messages)) == 4


async def test_a_summary_by_a_model() -> None:
    """The newest stay word for word, one message summarises the others."""
    long = [{**m, "content": f"{m['content']} " * 40} for m in TALK[1:]]
    provider = Provider()
    compacted = await SummarizationStrategy(provider, 2, 100_000).compact([TALK[0], *long])

    assert compacted[0] == TALK[0]
    assert compacted[1]["content"] == "[Summary of earlier conversation]\nThey spoke of Rust."
    assert compacted[2:] == long[-2:]
    assert provider.asked == [4]


def test_the_counter() -> None:
    """Four bytes to a token, or another ratio; 300 for an image, and 4 for each message."""
    assert HeuristicTokenCounter().estimate_text("Hello, world!") == 4
    assert HeuristicTokenCounter.with_ratio(2).estimate_text("a" * 40) == 20
    image = {"role": "user", "content": [{"type": "image"}]}
    assert HeuristicTokenCounter().estimate_messages([image]) == 304


def test_reminders() -> None:
    """Every fifth turn, and where the context has grown."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(5), "Reminder: keep responses concise.")
    injector.add_rule(OnTokenThreshold(50_000), "Context is getting long.")

    assert injector.check(turn=4, tokens=49_999) == []
    assert injector.check(turn=5, tokens=100) == ["Reminder: keep responses concise."]
    assert len(injector.check(turn=10, tokens=50_000)) == 2


def test_sections() -> None:
    """The lower number is first."""
    context = PersistentContext()
    context.add_section(ContextSection("Output rules", "Always show code.", priority=10))
    context.add_section(ContextSection("Role", "You are a senior engineer.", priority=0))

    assert context.render() == (
        "## Role\nYou are a senior engineer.\n\n## Output rules\nAlways show code."
    )


def test_compaction_on_the_providers_side() -> None:
    """An edit is named as the provider names it."""
    wanted = ContextManagement(edits=(ContextEdit("compact_20260112"),))

    assert [edit.strategy for edit in wanted.edits] == ["compact_20260112"]
