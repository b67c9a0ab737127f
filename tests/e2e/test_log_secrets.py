"""What people say, who they are, and every password stay out of all that a worker logs."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
import redis.asyncio as redis

from tests.e2e.commands import HUNG, Ctxb, RunningWorker
from tests.support import row

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

#: A password in the URL of an unreachable server, which the log has to report.
NOBODY = "http://canary-user:canary-url-password@127.0.0.1:9/v1"


def request(name: str, content: dict[str, Any], **fields: Any) -> bytes:
    """Return a request of an owner whose key is a canary, too."""
    return json.dumps(
        {"id": name, "owner_key": "canary-owner", "content": content, **fields}
    ).encode()


def run(**context: Any) -> dict[str, Any]:
    """Return a run that has something to say in every field that takes words."""
    call = {"id": "c1", "name": "look", "arguments": {"q": "canary-argument"}}
    return {
        "history": [
            {"id": "h1", "role": "HUMAN", "content": "canary-input"},
            {"id": "h2", "role": "AI", "content": "", "metadata": {"tool_calls": [call]}},
            {
                "id": "h3",
                "role": "TOOL",
                "content": "canary-result",
                "metadata": {"tool_call_id": "c1", "secret": "canary-metadata"},
            },
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": "canary-tool"}}],
        "metadata": {
            "user_profile": {"prompt_overrides": {"friends_profile": "canary-profile"}},
            "api_key": "canary-unknown",
            "context": {"blocks": {"MOOD": "canary-block"}, "explain": True, **context},
        },
    }


def requests() -> list[bytes]:
    """Return requests, good and bad ones, each bad in another place."""
    past = [{"id": "p1", "role": "HUMAN", "content": "canary-past"}]
    short = {"current_input": "canary-short"}
    bad = [
        {"layout": "canary-layout"},
        {"strategy": "canary-strategy"},
        {"memory_limit": "canary-limit"},
        {"identity": "canary-identity"},
        {"max_tokens": 10},
        {"canary_key": "canary-value"},
    ]
    return [
        request("r-run", run()),
        request("r-past", run(past=past)),
        request("r-token", short, metadata={"password": "canary-envelope", "timeout_ms": 60_000}),
        request("r-parts", {"current_input": [{"text": "canary-part"}]}),
        request("r-both", {**short, **run()}),
        request("r-late", short, metadata={"deadline": "2020-01-01T00:00:00Z"}),
        request("r-reply", short, metadata={"reply_to": "canary-place", "reply_kind": "list"}),
        *(request(f"r-{n}", {**short, "context": each}) for n, each in enumerate(bad)),
        request("r-run", {"current_input": "canary-conflict"}),
        b'{"owner_key": "canary-owner", "content": {"current_input": "canary-broken',
        b'"canary-string"',
    ]


def results() -> list[tuple[str, bytes]]:
    """Return rows for the recorder, good and bad ones, and one that contradicts another."""
    good = {"owner_key": "canary-owner", "run_id": "r1", "role": "AI", "content": "canary-answer"}
    return [
        ("llm.results", json.dumps({**good, "id": "a1"}).encode()),
        ("llm.results", json.dumps({**good, "id": "a1", "content": "canary-other"}).encode()),
        ("llm.results", json.dumps({**good, "id": "a2", "role": "canary-role"}).encode()),
        ("tools.results", b'{"owner_key": "canary-owner", "content": "canary-torn'),
    ]


async def test_no_log_has_what_was_said_or_a_secret(on_bus: Ctxb) -> None:
    """Not at the level debug, whether it goes well or badly."""
    variables = {
        "CTXB_LOG__LEVEL": "debug",
        "CTXB_HTTP__PORT": "0",
        "CTXB_HTTP__TOKEN": "canary-http-token",
        "CTXB_SUMMARIES__SUMMARIZER__KIND": "openai",
        "CTXB_SUMMARIES__SUMMARIZER__MODEL": "m",
        "CTXB_SUMMARIES__SUMMARIZER__BASE_URL": NOBODY,
        "CTXB_SUMMARIES__SUMMARIZER__API_KEY": "canary-api-key",
        "CTXB_SUMMARIES__SUMMARIZER__RETRIES": "0",
        "CTXB_EVENTS__CONTENT": "true",
    }
    bus = on_bus.environment["CTXB_BUS__URL"]
    async with (
        on_bus.worker(**variables) as worker,
        redis.Redis.from_url(bus) as client,
        httpx2.AsyncClient(base_url=address_of(worker), trust_env=False, timeout=HUNG) as http,
    ):
        said = [row(n, ("HUMAN", "AI")[n % 2], f"canary-row {n}. " * 20) for n in range(40)]
        for each in said:
            entry = {**each, "owner_key": "canary-owner", "role": "AI"}
            await client.xadd("llm.results", {"data": json.dumps(entry)})
        for topic, payload in results():
            await client.xadd(topic, {"data": payload})
        await reported(worker, ["recorder.conflict"])
        for payload in requests():
            await client.xadd("context.build.request", {"data": payload})
        tight = {"strategy": "summarization", "memory_tokens": 800, "memory_limit": None}
        content = {"current_input": "canary-last", "context": tight}
        await client.xadd("context.build.request", {"data": request("r-last", content)})
        for token in ("canary-wrong-token", "canary-http-token"):
            headers = {"Authorization": f"Bearer {token}", "X-Owner-Key": "canary-owner"}
            await http.post("/v1/build", content=b'{"x": "canary-body"', headers=headers)
            await http.get("/v1/builds?limit=canary-query", headers=headers)
        await reported(
            worker, ["summary.failed", "request.unreadable", "deadline_exceeded", "r-last"]
        )
        assert await worker.stop() == 0

    lines = "".join(worker.said)
    # all canaries begin alike
    assert [line for line in worker.said if "canary" in line] == []
    # what is looked at is the log, and of these requests
    assert all(event in lines for event in ("context.built", "context.refused", "worker.stopped"))


def address_of(worker: RunningWorker) -> str:
    """Return where a worker says that it serves."""
    (line,) = (line for line in worker.said if "http.listening" in line)
    start = line.index("http://")
    return line[start:].split('"')[0].split()[0]


async def reported(worker: RunningWorker, events: Iterable[str]) -> None:
    """Wait until a worker has logged all these events."""
    async with asyncio.timeout(HUNG):
        for event in events:
            while not any(event in line for line in worker.said):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
