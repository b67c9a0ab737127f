"""The bench of deferred tools finds what a search finds, and sees what changes a prefix."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.tools import Replay, measure, read_registry
from service.app import open_builder
from service.config.content import ToolsSettings
from service.config.settings import Settings

BOATS: dict[str, Any] = {"name": "hire_boat", "description": "Hire a boat on a lake."}
MAIL: dict[str, Any] = {"name": "send_mail", "description": "Write to somebody."}


def written(folder: Path, name: str, *rows: object) -> None:
    """Write a set."""
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write three tools, and a conversation with two calls."""
    tools = [{"type": "function", "function": each} for each in (BOATS, MAIL)]
    schema = {"type": "object", "properties": {}}
    listing = {"id": "mcp_time", "tools": [{"name": "now", "inputSchema": schema}]}
    written(tmp_path, "tools", {"id": "a", "tools": tools}, {"id": "b", "tools": tools[:1]})
    written(tmp_path, "mcp_tools", listing)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "I want to hire something."},
        {"role": "assistant", "content": "A boat!", "tool_calls": [called("c1", "hire_boat")]},
        {"role": "tool", "tool_call_id": "c1", "content": "Done."},
        {"role": "user", "content": "Now tell Ann."},
        {"role": "assistant", "content": None, "tool_calls": [called("c2", "send_mail")]},
        {"role": "tool", "tool_call_id": "c2", "content": "Sent."},
    ]
    written(tmp_path, "tau_airline", {"id": "t", "messages": messages})
    return tmp_path


def called(id_: str, name: str) -> dict[str, Any]:
    """Return a call."""
    return {"id": id_, "function": {"name": name, "arguments": "{}"}}


async def test_each_call_is_searched_for(data: Path) -> None:
    """By its own words, or those of the human; nothing changes meanwhile."""
    figures = await measure(data)

    assert read_registry(data).list_tool_names() == ["hire_boat", "send_mail", "time__now"]
    assert figures["tools"] == 3
    assert (figures["with_words"], figures["reachable_with_words"]) == (1, 1.0)
    assert (figures["by_input"], figures["reachable_by_input"]) == (1, 0.0)
    assert (figures["prefix_changes"], figures["builds"]) == (0, 2)


async def test_a_changed_prefix_is_seen(data: Path) -> None:
    """As when the registry has another tool."""
    async with open_builder(Settings(tools=ToolsSettings(defer=True))) as builder:
        registry: Any = builder.sources.tools
        registry.register({"type": "function", "function": BOATS})
        replay = Replay(builder, registry, "t")
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [called("c", "hire_boat")]},
        ]
        await replay.follow(messages)
        await replay.follow(messages)
        assert (replay.builds, replay.prefix_changes) == (2, 0)
        registry.register({"type": "function", "function": MAIL})
        await replay.follow(messages)
        assert (replay.builds, replay.prefix_changes) == (3, 1)
