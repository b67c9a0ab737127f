"""The embedder over HTTP, against a server of ours that speaks the protocol."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from traceback import format_exception
from typing import Any

import pytest

from service.adapters.embedders import openai as module
from service.config.settings import Settings
from service.connect import open_embedder
from service.errors import EmbedderError, NoVectorError
from service.ports.services import Embedder
from tests.integration.chat_server import ChatServer, Reply, chat_server, failed

pytestmark = pytest.mark.integration

KEY = "key-of-the-test"

Opened = Callable[..., AbstractAsyncContextManager[tuple[Embedder, ChatServer]]]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to the server directly."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def embedded(*vectors: Any) -> Reply:
    """Return an answer with these vectors, the last first."""
    items = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(vectors)]
    answer = {"object": "list", "model": "m", "data": items[::-1]}
    return Reply(body=json.dumps({**answer, "usage": {"prompt_tokens": 1}}).encode())


@pytest.fixture
def opened() -> Opened:
    """Return what opens the configured embedder on a server that gives these replies."""

    @asynccontextmanager
    async def open_it(*replies: Reply) -> AsyncIterator[tuple[Embedder, ChatServer]]:
        async with chat_server(replies) as server:
            chosen = {"kind": "openai", "model": "m", "base_url": server.url, "api_key": KEY}
            settings = Settings.model_validate({"recall": {"embedder": chosen}})
            async with open_embedder(settings) as embedder:
                yield embedder, server

    return open_it


async def test_vectors_come_back_in_order(opened: Opened) -> None:
    """Of texts without secrets; an empty one becomes a dash, as servers refuse empty texts."""
    async with opened(embedded([1, 0], [0.5, 2])) as (embedder, server):
        assert embedder.name == "m"
        vectors = await embedder.embed(["password=swordfish1", " "], question=True)

    (asked,), (headers,) = server.asked, server.headers
    assert vectors == [[1.0, 0.0], [0.5, 2.0]]
    assert server.paths == ["POST /v1/embeddings HTTP/1.1"]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert asked.pop("input")[1] == "-"
    assert asked == {"model": "m", "encoding_format": "float"}
    assert "swordfish1" not in str(server.asked)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (failed(500, f"wrong: {KEY} secret"), "status 500"),
        (failed(401, f"wrong: {KEY} secret"), "status 401"),
        (Reply(body=b"<html>"), "not JSON"),
        (Reply(body=b"<html>", kind="text/html"), "not a vector for each text"),
        (Reply(body=b"[]"), "not a vector for each text"),
        (embedded([1.0]), "not a vector for each text"),
        (embedded([1.0], []), "not a vector for each text"),
        (embedded([1.0], [1.0, 2.0]), "not a vector for each text"),
        (embedded([1.0], ["x"]), "not a vector for each text"),
        (embedded([1.0], [float("nan")]), "not a vector for each text"),
        (embedded([1.0], None), "not a vector for each text"),
    ],
)
async def test_trouble_says_what_it_is(opened: Opened, reply: Reply, cause: str) -> None:
    """With nothing of what was sent, what came back, or the key."""
    async with opened(reply) as (embedder, _):
        with pytest.raises(EmbedderError, match=cause) as raised:
            await embedder.embed(["a secret", "b"])

    reported = "".join(format_exception(raised.value))
    assert KEY not in reported.replace(f'KEY = "{KEY}"', "")
    assert "wrong:" not in reported


async def test_a_refused_text_is_distinguished_from_an_outage(opened: Opened) -> None:
    """It would be refused again."""
    async with opened(failed(400)) as (embedder, _):
        with pytest.raises(NoVectorError, match="400"):
            await embedder.embed(["a"])


async def test_a_server_that_hangs_is_not_waited_for(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a minute."""
    monkeypatch.setattr(module, "SECONDS", 0.05)
    async with opened(Reply(hangs=True)) as (embedder, _):
        with pytest.raises(EmbedderError, match=r"no answer within 0\.05 s"):
            await embedder.embed(["a"])


async def test_a_server_that_is_away_is_named_by_the_error(opened: Opened) -> None:
    """Not by its address, which may hold a password."""
    chosen = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    settings = Settings.model_validate({"recall": {"embedder": chosen}})
    async with open_embedder(settings) as embedder:
        with pytest.raises(EmbedderError, match="can't be reached: APIConnectionError"):
            await embedder.embed(["a"])
