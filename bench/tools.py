"""Measure whether deferred tools are found, what they take of a context, and what stays cached.

    python -m bench.tools --data DIR [--limit N] [--json]

All tools of DIR's ``tools`` and ``mcp_tools`` are one registry, deferred. Each trajectory of
``tau_airline`` is a conversation: before each call of a tool, the model searches for it once.

- ``reachable_with_words``: the share of searches that find the tool whose query is what the model
  said with its call; there are ``with_words`` of them. The queries of ``reachable_by_input`` are
  the last human message.
- ``token_share``: the array, `[CAPABILITIES]`, and the longest result of a search, of the tokens of
  array and block if no tools are deferred.
- ``prefix_changes``: builds that don't begin with all that the one before showed up to its input,
  and within a run with all of its messages; or whose array differs.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.json_lines import read_lines
from bench.recall.__main__ import AMPLE, NOW, PATIENT
from bench.report import over_data, show
from formatters.deferred import CALL_NAME, SEARCH_NAME, read_definitions
from formatters.model import Tag
from service.adapters.mcp.definitions import read_definitions as read_listing
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.app import open_builder
from service.builder import ContextBuilder
from service.config.content import McpServerSettings, ToolsSettings
from service.config.settings import Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess

TRAJECTORIES: Final = "tau_airline"
CONTEXT: Final = {"layout": "chat", "memory_limit": None, "max_tokens": AMPLE, "reserve_tokens": 0}


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the tool that is called next, and whether it found it."""

    with_words: bool
    hit: bool
    #: Tokens of its result.
    tokens: int


def read_registry(data: Path) -> InMemoryToolRegistry:
    """Return a registry of the tools of all sets; of tools with one name the first counts."""
    registry = InMemoryToolRegistry()
    for tools in read_lines(data / "tools.jsonl.gz"):
        for tool in tools["tools"]:
            if registry.get_tool_definition(tool["function"]["name"]) is None:
                registry.register(tool)
    for listing in read_lines(data / "mcp_tools.jsonl.gz"):
        name = listing["id"].removeprefix("mcp_")
        server = McpServerSettings(name=name, command="unused")
        registry.replace(name, read_listing(listing["tools"], server).tools)
    return registry


async def measure(data: Path, limit: int | None = None) -> dict[str, Any]:
    """Return the figures over all trajectories, or the first of them."""
    registry = read_registry(data)
    settings = Settings(gather=PATIENT, tools=ToolsSettings(defer=True))
    async with open_builder(settings) as opened:
        builder = replace(opened, sources=replace(opened.sources, tools=registry))
        trajectories = list(read_lines(data / f"{TRAJECTORIES}.jsonl.gz"))[:limit]
        replays = [Replay(builder, registry, str(each["id"])) for each in trajectories]
        for replay, trajectory in zip(replays, trajectories, strict=True):
            await replay.follow(trajectory["messages"])
        few = _taken(await build(builder, "few", [_row(0, "HUMAN", "Hello.")]))
    async with open_builder(Settings(gather=PATIENT)) as opened:
        builder = replace(opened, sources=replace(opened.sources, tools=registry))
        whole = _taken(await build(builder, "all", [_row(0, "HUMAN", "Hello.")]))
    searches = [search for replay in replays for search in replay.searches]
    with_words = [search.hit for search in searches if search.with_words]
    by_input = [search.hit for search in searches if not search.with_words]
    return {
        "tools": len(registry.list_tool_names()),
        "tokens": whole,
        "with_words": len(with_words),
        "reachable_with_words": round(fmean(with_words), 4) if with_words else None,
        "by_input": len(by_input),
        "reachable_by_input": round(fmean(by_input), 4) if by_input else None,
        "token_share": round((few + max(search.tokens for search in searches)) / whole, 4),
        "prefix_changes": sum(replay.prefix_changes for replay in replays),
        "builds": sum(replay.builds for replay in replays),
    }


def _taken(content: BuildSuccess) -> int:
    return content.usage.tools + content.usage.blocks[Tag.CAPABILITIES]


@dataclass(slots=True)
class Replay:
    """A conversation with an agent that searches for each tool before it calls it."""

    builder: ContextBuilder
    registry: InMemoryToolRegistry
    owner: str
    searches: list[Search] = field(default_factory=list)
    builds: int = 0
    prefix_changes: int = 0
    #: The messages since the last human one, and the number of those before.
    _run: list[dict[str, Any]] = field(default_factory=list)
    _past: int = 0
    #: The required beginning of the next build: the array, and messages.
    _tools: str | None = None
    _shown: list[dict[str, Any]] = field(default_factory=list)

    async def follow(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Build a context after each search."""
        for message in messages:
            role, text = message["role"], message.get("content") or ""
            if role == "user":
                await self._begin(text)
            elif role == "tool":
                self._say("TOOL", text, tool_call_id=message["tool_call_id"])
            elif role == "assistant":
                for call in message.get("tool_calls") or ():
                    await self._search(call["function"]["name"], text)
                self._say("AI", text, tool_calls=list(_through(message.get("tool_calls") or ())))

    async def _begin(self, text: str) -> None:
        await self.builder.history.append(self.owner, self._run)
        self._past += len(self._run)
        self._run = []
        opening = f"[{Tag.THIS_MOMENT}]\n"
        moments = (i for i, m in enumerate(self._shown) if m["content"].startswith(opening))
        self._shown = self._shown[: next(moments, 0)]
        self._say("HUMAN", text)

    def _say(self, role: str, text: str, **metadata: object) -> None:
        number = self._past + len(self._run)
        run_id = f"{self.owner}-{self._past}"
        self._run.append({**_row(number, role, text), "run_id": run_id, "metadata": metadata})

    async def _search(self, needed: str, words: str) -> None:
        """Search for a tool in the words of its call, or the human's."""
        query = words.strip() or self._run[0]["content"]
        id_ = f"search_{self._past + len(self._run)}"
        call = {"id": id_, "name": SEARCH_NAME, "arguments": {"query": query}}
        self._say("AI", "", tool_calls=[call])
        content = await build(self.builder, self.owner, self._run)
        self._compare(content)
        result = str(content.messages[-1]["content"])
        names = read_definitions(result, self.registry.list_tool_names()) or []
        tokens = _COUNTER.count(result)
        self.searches.append(Search(bool(words.strip()), needed in names, tokens))

    def _compare(self, content: BuildSuccess) -> None:
        tools = json.dumps(content.tools)
        shown = content.messages
        stays = self._tools in {None, tools} and shown[: len(self._shown)] == self._shown
        self.prefix_changes += not stays
        self.builds += 1
        self._tools, self._shown = tools, shown


def _through(calls: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, object]]:
    """Yield calls of found tools as the model makes them: with the tool that calls others."""
    for call in calls:
        function = call["function"]
        arguments = {"name": function["name"], "arguments": json.loads(function["arguments"])}
        yield {"id": call["id"], "name": CALL_NAME, "arguments": arguments}


async def build(builder: ContextBuilder, owner: str, run: Sequence[dict[str, Any]]) -> BuildSuccess:
    """Return the context of an input and the run after it."""
    metadata = {"client_timestamp_utc": NOW, "context": CONTEXT}
    content = {"history": list(run), "metadata": metadata}
    request = {"owner_key": owner, "run_id": run[0].get("run_id"), "content": content}
    answer = (await builder.build(BuildRequest.model_validate(request))).content
    if answer.status != "success":
        raise RuntimeError(answer.error.detail)
    return answer


def _row(number: int, role: str, text: str) -> dict[str, Any]:
    return {"id": f"m{number}", "role": role, "content": text}


_COUNTER: Final = TiktokenTokenizers().counter("o200k_base")


def main() -> None:
    """Measure and print."""
    parser = over_data(__doc__, "a folder with the sets")
    parser.add_argument("--limit", type=int, help="trajectories at most")
    options = parser.parse_args()
    show(asyncio.run(measure(options.data, options.limit)), as_json=options.json)


if __name__ == "__main__":
    main()
