"""Contexts with one hostile text in every untrusted place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bench.forgeries import OWN_TAG, Forgery
from formatters.friends_info import friends_info
from formatters.model import Block, Entry, Facts, MemoryView
from formatters.recalled import insert_day_lines, recalled
from formatters.rows import read_rows
from formatters.shared_memory import shared_memory
from prompts.capabilities import capabilities
from service.wire.request import BuildRequest

#: Stands in the untrusted places to learn what structure a context has.
HARMLESS: Final = Forgery("plain words", "plain words")


def rows(text: Forgery) -> list[dict[str, Any]]:
    """Return a history with the text in each role's content, parts, names, ids and arguments."""
    one, two = text.first, text.second
    ids = f"{one}1", f"{two}2"
    call = {"id": ids[0], "name": one, "arguments": {two: one}}
    nested = {"id": ids[1], "function": {"name": two, "arguments": json.dumps({"query": one})}}
    parts = [{"type": "text", "text": one}, {"type": "image"}, {"type": "text", "text": two}, two]
    drafts: list[tuple[str, str | None, Any, dict[str, Any]]] = [
        ("HUMAN", "r1", one, {}),
        ("AI", "r1", two, {"tool_calls": [call, nested]}),
        ("TOOL", "r1", one, {"tool_call_id": ids[0], "name": one}),
        ("TOOL", "r1", two, {"tool_call_id": ids[1], "name": two}),
        ("AI", "r1", one, {}),
        ("AI", "r1", two, {}),
        ("HUMAN", None, parts, {}),
        ("AI", None, "", {"tool_calls": [{**call, "id": "c3"}]}),
        ("system", None, one, {}),
        ("HUMAN", "r2", two, {}),
    ]
    return [
        {
            "id": f"m{place}",
            "run_id": run,
            "role": role,
            "content": content,
            "timestamp": f"2025-12-09T10:{place:02}:00Z",
            "metadata": metadata,
        }
        for place, (role, run, content, metadata) in enumerate(drafts)
    ]


def tool(text: Forgery, name: str) -> dict[str, Any]:
    """Return a definition with the text in its descriptions, parameters and their types."""
    one, two = text.first, text.second
    properties = {
        one: {"type": two, "description": one},
        f"p{two}": {"type": ["string", one], "description": two},
        "q": {"anyOf": [{"type": two}], "description": f"{one}\n{two}"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["q"]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"{one}\n{two}", "parameters": parameters},
    }


def request(text: Forgery, layout: str) -> BuildRequest:
    """Return a request with the text wherever a request lets strangers in."""
    context = {
        "layout": layout,
        "past": rows(text),
        "memory_limit": None,
        "max_tokens": 100_000,
        "blocks": {OWN_TAG: f"{text.first}\n{text.second}"},
    }
    both = f"{text.first}\n{text.second}"
    metadata = {
        "user_profile": {"prompt_overrides": {"friends_profile": both}},
        "client_timestamp_utc": "2025-12-10T08:00:00Z",
        "context": context,
    }
    content = {
        "history": [{"content": both}, *in_flight(text)],
        # only names that an API takes get here; others are read from the block itself
        "tools": [tool(text, "search")],
        "metadata": metadata,
    }
    return BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})


def in_flight(text: Forgery) -> list[dict[str, Any]]:
    """Return a run with the text in what the model said, and in what a tool gave."""
    id_ = f"{text.first}3"
    call = {"id": id_, "name": text.first, "arguments": {text.second: text.first}}
    return [
        {"role": "AI", "content": text.first, "metadata": {"tool_calls": [call]}},
        {"role": "TOOL", "content": text.second, "metadata": {"tool_call_id": id_}},
        {"role": "AI", "content": f"{text.first}\n{text.second}"},
    ]


def shortened(text: Forgery, chars: int) -> Iterator[Mapping[str, Any]]:
    """Return the blocks that a short budget shortens, at a number of characters a message."""
    profile = {"prompt_overrides": {"friends_profile": f"{text.first}\n{text.second}"}}
    facts = Facts(
        current_input="",
        history=read_rows(rows(text)),
        tools=(
            tool(HARMLESS, text.first),
            tool(text, "search"),
            tool(HARMLESS, text.second),
        ),
        profile=profile,
        blocks={OWN_TAG: ""},
        memory=MemoryView(limit=None),
        recalls=True,
    )
    offered = capabilities(facts)
    # the steps down of the tools in turn: all, without descriptions of parameters, names alone
    yield _message(offered, [_step(each, step) for step, each in enumerate(offered.entries)])
    block = recalled(facts)
    yield _message(block, insert_day_lines(block.entries))
    for block in (shared_memory(facts), friends_info(facts)):
        yield _message(block, [each.shorten(chars) for each in block.entries if each.shorten])


def _step(entry: Entry, step: int) -> Entry:
    forms = (entry.text, *entry.shorter)
    return replace(entry, text=forms[min(step, len(forms) - 1)])


def _message(block: Block, entries: Sequence[Entry]) -> Mapping[str, Any]:
    return {"role": block.role, "content": replace(block, entries=tuple(entries)).text}
