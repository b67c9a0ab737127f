"""The summarizer over HTTP, against a server of ours that speaks the protocol."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from time import monotonic
from traceback import format_exception
from typing import Any

import pytest

from formatters.model import Message, Role
from service.adapters.openai_client import open_client
from service.adapters.summarizers.chunked import ChunkedSummarizer
from service.adapters.summarizers.openai import OpenAIModel, open_openai_summarizer
from service.adapters.tokens.tokenizers import HEURISTIC
from service.config.content import SummarizerSettings
from service.config.settings import Settings
from service.connect import open_summarizer
from service.errors import SummarizerError
from service.observe.logs import configure_logging
from service.observe.tracing import active_span
from service.ports.services import Summarizer
from tests.integration.chat_server import ChatServer, Reply, chat_server, failed, said
from tests.support import logging_put_back
from tests.tracing import Collected

pytestmark = pytest.mark.integration

KEY = "key-of-the-test"
TALK = [
    Message(id="m1", role=Role.HUMAN, content="Where is the key? password=swordfish"),
    Message(id="m2", role=Role.AI, content="Under the blue pot."),
]

#: Opens a summarizer on a server that gives these replies.
Opened = Callable[..., AbstractAsyncContextManager[tuple[Summarizer, ChatServer]]]


def settings(url: str, **given: Any) -> SummarizerSettings:
    """Return settings for a server."""
    fields = {"kind": "openai", "model": "small-model", "base_url": url, "api_key": KEY, **given}
    return SummarizerSettings.model_validate(fields)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to the server directly."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def opened() -> Opened:
    """Return what opens a summarizer on a server, which asks for retries without delay."""

    @asynccontextmanager
    async def open_it(
        *replies: Reply, **given: Any
    ) -> AsyncIterator[tuple[Summarizer, ChatServer]]:
        async with chat_server(replies) as server:
            chosen = settings(server.url, **given)
            async with open_client(chosen, chosen.retries) as client:
                model = OpenAIModel(client, chosen)
                yield ChunkedSummarizer(model.name, model.ask, HEURISTIC.count, chosen), server

    return open_it


async def test_a_summary_comes_back() -> None:
    """The request is a chat completion with prompt, model, key and limit; no secret is in it."""
    async with chat_server([said("The key is under the blue pot.")]) as server:
        chosen = Settings.model_validate({"summaries": {"summarizer": settings(server.url)}})
        async with open_summarizer(chosen, HEURISTIC) as summarizer:
            text = await summarizer.summarize(TALK, max_tokens=100)
            assert summarizer.name == "small-model"

    (asked,), (headers,) = server.asked, server.headers
    (message,) = asked.pop("messages")
    assert text == "The key is under the blue pot."
    assert server.paths == ["POST /v1/chat/completions HTTP/1.1"]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert asked == {"model": "small-model", "max_tokens": 98, "temperature": 0.0}
    assert message["role"] == "user"
    assert "ASSISTANT: Under the blue pot." in message["content"]
    assert "swordfish" not in message["content"]


async def test_what_newer_models_ask_for(opened: Opened) -> None:
    """The limit's field can be named, and the temperature left out."""
    given = {"limit_field": "max_completion_tokens", "temperature": None}
    async with opened(said("Short."), **given) as (summarizer, server):
        await summarizer.summarize(TALK, max_tokens=100)

    assert server.asked[0].keys() == {"model", "messages", "max_completion_tokens"}


async def test_a_server_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gets a word in its place, and nothing from the environment."""
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "ADMIN_KEY", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", "of-another-server")
    async with chat_server([said("Short.")]) as server:
        chosen = settings(server.url, api_key=None)
        async with open_openai_summarizer(chosen, HEURISTIC) as summarizer:
            await summarizer.summarize(TALK, max_tokens=100)

    assert server.headers[0]["authorization"] == "Bearer none"
    assert "of-another-server" not in str(server.headers)


async def test_every_chunk_is_sent(opened: Opened) -> None:
    """A long history takes several requests."""
    talk = [Message(id=f"m{n}", role=Role.HUMAN, content=f"{n:03} " * 250) for n in range(4)]
    async with opened(said("Short."), chunk_tokens=256) as (summarizer, server):
        text = await summarizer.summarize(talk, max_tokens=500)

    assert text == "\n\n".join(["Short."] * 4)
    assert len(server.asked) == 4


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_what_may_pass_is_tried_again(opened: Opened, status: int) -> None:
    """Until it is answered."""
    async with opened(failed(status), failed(status), said("Short.")) as (summarizer, server):
        assert await summarizer.summarize(TALK, max_tokens=100) == "Short."

    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("reply", "attempts", "problem"),
    [
        (failed(500), 3, "status 500"),
        (failed(429), 3, "status 429"),
        (failed(400), 1, "status 400"),
        (failed(401, f"Incorrect API key provided: {KEY}"), 1, "status 401"),
        (Reply(status=502, body=b"<html>bad gateway", kind="text/html"), 3, "status 502"),
        (Reply(body=b"\x00\xffgarbage"), 1, "not JSON"),
        (Reply(body=b'{"choices": [{'), 1, "not JSON"),
        (Reply(body=b""), 1, "not JSON"),
        (Reply(body=b"<html>welcome", kind="text/html"), 1, "not a chat completion"),
        (Reply(body=b'{"ok": true}'), 1, "not a chat completion"),
        (said(""), 1, "no text"),
        (said(None), 1, "no text"),
        (said("Blah, blah. " * 200), 1, "tokens instead of"),
    ],
)
async def test_a_server_in_trouble(
    opened: Opened, reply: Reply, attempts: int, problem: str
) -> None:
    """Is an error after a bounded number of attempts, whose text has no secret."""
    async with opened(reply) as (summarizer, server):
        with pytest.raises(SummarizerError, match=problem) as raised:
            await summarizer.summarize(TALK, max_tokens=100)

    assert len(server.asked) == attempts
    assert KEY not in "".join(format_exception(raised.value))


async def test_the_kind_of_content_does_not_matter(opened: Opened) -> None:
    """An answer is read as JSON whatever the server calls it."""
    reply = Reply(body=said("Short.").body, kind="text/plain")
    async with opened(reply) as (summarizer, _):
        assert await summarizer.summarize(TALK, max_tokens=100) == "Short."


async def test_a_server_says_when_to_try_again(opened: Opened) -> None:
    """The next attempt is made no earlier than its Retry-After header asks for."""
    busy = replace(failed(429), retry_after_ms=1_200)
    async with opened(busy, said("Short.")) as (summarizer, _):
        started = monotonic()
        await summarizer.summarize(TALK, max_tokens=100)

    assert monotonic() - started >= 1.2


@pytest.mark.parametrize("replies", [(Reply(hangs=True),), (failed(503), Reply(hangs=True))])
async def test_a_server_that_hangs(opened: Opened, replies: tuple[Reply, ...]) -> None:
    """All attempts together have the time of the settings."""
    async with opened(*replies, timeout_seconds=0.3) as (summarizer, _):
        with pytest.raises(SummarizerError, match=r"within 0\.3 s"):
            await summarizer.summarize(TALK, max_tokens=100)


async def test_nobody_listens() -> None:
    """A refused connection is tried again, and then an error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        chosen = settings(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", retries=1)
        async with open_client(chosen, chosen.retries) as client:
            with pytest.raises(SummarizerError, match="APIConnectionError"):
                await OpenAIModel(client, chosen).ask("Hello", 10)


async def test_the_breaker_is_around_it() -> None:
    """After n failures in a row the server gets no requests for a while."""
    async with chat_server([failed(401)]) as server:
        fields = settings(server.url, breaker_failures=2)
        chosen = Settings.model_validate({"summaries": {"summarizer": fields}})
        async with open_summarizer(chosen, HEURISTIC) as summarizer:
            for _ in range(4):
                with pytest.raises(SummarizerError):
                    await summarizer.summarize(TALK, max_tokens=100)

    assert len(server.asked) == 2


@pytest.fixture
def debugging(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Log all that there is to log, to where it is captured."""
    with logging_put_back():
        configure_logging("debug", format="json")
        yield


@pytest.mark.usefixtures("debugging")
async def test_prompts_stay_out_of_the_log(
    opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    """At no level does the SDK log what it sends, or the address."""
    async with opened(failed(500), said("Short.")) as (summarizer, _):
        await summarizer.summarize(TALK, max_tokens=100)

    assert capsys.readouterr().err == ""


# --- spans -----------------------------------------------------------------------------------


async def test_each_call_is_a_span(opened: Opened) -> None:
    """It has the attributes of the conventions, and nothing of prompt, answer or key."""
    usage = {"prompt_tokens": 120, "completion_tokens": 9}
    answer = json.dumps({**json.loads(said("Under the blue pot.").body), "usage": usage})
    collected = Collected()
    replies = (failed(503, "swordfish"), Reply(body=answer.encode()))
    async with opened(*replies) as (summarizer, _):
        with active_span(collected.tracer, "summarize history"):
            await summarizer.summarize(TALK, max_tokens=100)
    call, whole = collected.spans

    assert collected.above(call) == whole.name
    assert call.name == "chat small-model"
    assert dict(call.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small-model",
        "gen_ai.request.max_tokens": 98,
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 9,
    }
    reported = "".join(span.to_json() for span in collected.spans)
    assert [word for word in ("swordfish", "blue pot", KEY) if word in reported] == []


async def test_a_failed_call_is_a_failed_span(opened: Opened) -> None:
    """Its error is named by its class."""
    collected = Collected()
    async with opened(failed(503, "swordfish")) as (summarizer, _):
        with pytest.raises(SummarizerError), active_span(collected.tracer, "x"):
            await summarizer.summarize(TALK, max_tokens=100)
    (call, _) = collected.spans

    assert (call.attributes or {})["error.type"] == "InternalServerError"
    assert "swordfish" not in call.to_json()


@pytest.mark.parametrize(
    "body",
    [
        b"not JSON",
        b"[" * 100_000,
        b"[]",
        b'{"model": 7, "usage": {"prompt_tokens": "many"}, "choices": [{"finish_reason": "x"}]}',
    ],
)
async def test_an_answer_that_makes_no_sense_reveals_nothing(opened: Opened, body: bytes) -> None:
    """And fails as it does without a span."""
    collected = Collected()
    async with opened(Reply(body=body)) as (summarizer, _):
        with pytest.raises(SummarizerError), active_span(collected.tracer, "x"):
            await summarizer.summarize(TALK, max_tokens=100)
    (asked, _) = collected.spans

    assert not {name for name in asked.attributes or {} if "response" in name or "usage" in name}
