"""Native blocks for tests; with `len` for a count, a message costs its characters and 4."""

from dataclasses import replace
from functools import partial

from formatters.model import Block, ChatMessage, Entry, Message, Role, ToolCall, TrimPolicy

CALL = ToolCall(id="c", name="f", arguments={}, text="{}")


def said(name: str, size: int) -> Entry:
    """Return a human message of n tokens."""
    return Entry(
        text="",
        messages=(Message(id=name, role=Role.HUMAN, content=""),),
        rows=1,
        native=(ChatMessage(role="user", content=name.ljust(size - 4, "-")),),
        shorten=lambda chars: shortened(said(name, min(size, chars + 4)), name),
        longest=size - 4,
    )


def called(name: str, *sizes: int, limit: int = 10_000) -> Entry:
    """Return a call of 7 tokens with results of n tokens each, all rows its candidates."""
    results = {f"{name}{place}": place for place in range(1, len(sizes) + 1)}
    return Entry(
        text="",
        messages=(
            Message(id=name, role=Role.AI, content="", tool_calls=(CALL,)),
            *(Message(id=each, role=Role.TOOL, content="") for each in results),
        ),
        rows=1 + len(sizes),
        native=(
            ChatMessage(role="assistant", tool_calls=(CALL,)),
            *(ChatMessage(role="tool", content="r" * min(size - 4, limit)) for size in sizes),
        ),
        results=results,
        shorten=lambda chars: shortened(called(name, *sizes, limit=chars), *results),
        longest=max(sizes, default=4) - 4,
    )


def shortened(entry: Entry, *names: str) -> Entry:
    """Return an entry of which these rows were cut."""
    return replace(entry, reasons=dict.fromkeys(names, "shortened"))


history = partial(Block, tag="HISTORY", native=True, gives_way=TrimPolicy.BY_STRATEGY)
run = partial(Block, tag="RUN", native=True, gives_way=TrimPolicy.ALL_BUT_NEWEST, volatile=True)
