"""Strangers' bytes, slow ones and too many of them, do the HTTP interface no harm."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.http import endpoint
from tests.serving import TOKEN, Scene, asking, serving

JSON = {"Content-Type": "application/json"}
OWNER = {**JSON, "X-Owner-Key": "ana"}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A worker that serves, and still does so when the test is over."""
    async with serving() as scene:
        yield scene
        await scene.built(id="msg_in_the_end")


async def raw(scene: Scene, *pieces: bytes) -> bytes:
    """Send bytes over a connection of their own; return what comes back first, or its end."""
    host, port = scene.served.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read(65_536)
    finally:
        writer.close()


HEADS = (
    b"\x00\xff\xfe\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /v1/builds HTTP/1.1\r\nHost: localhost\r\nX-Owner-Key: \xff\xfe\r\n"
    b"Connection: close\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
)
BODIES = (
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"\xff\xfe{}",
    b'{"ids": NaN}',
    b'{"ids": [1e999]}',
    b'{"ids": ["\\ud800"], "more": 1}',
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"owner_key": 7, "content": []}',
    b'{"ids": ' + b"9" * 5_000 + b"}",
)


async def test_what_is_no_request_is_refused(scene: Scene) -> None:
    """With a status of the 400s."""
    for head in HEADS:
        assert (await raw(scene, head)).startswith(b"HTTP/1.1 4"), head[:80]


@pytest.mark.parametrize(
    "path", ["/v1/build", "/v1/history", "/v1/prune", "/v1/prune/undo", "/v1/prune/preview"]
)
async def test_what_is_no_body_is_refused(scene: Scene, path: str) -> None:
    """With what is wrong about it."""
    for body in BODIES:
        answer = await scene.http.post(path, content=body, headers=OWNER)
        reported = (answer.status_code, answer.json()["error"]["code"])
        assert reported == (400, "invalid_request"), body[:80]


async def test_halves_of_characters_do_no_harm(scene: Scene) -> None:
    """A lone surrogate becomes the mark for what can't be read, as on the bus."""
    body = b'{"owner_key": "ana", "content": {"current_input": "a\\ud83d b"}}'
    answer = await scene.http.post("/v1/build", content=body, headers=JSON)
    assert answer.status_code == 200
    assert "a\ufffd b" in answer.text
    ids = json.dumps({"ids": ["\ud83d"]}).encode()
    answer = await scene.http.post("/v1/prune", content=ids, headers=OWNER)
    assert answer.json() == {"ids": ["\ufffd"], "changed": 0}


async def test_a_key_that_is_none_is_refused(scene: Scene) -> None:
    """So is one that is there twice."""
    for keys in ([""], ["x" * 129], ["%ff"], ["%F0%9F"], ["\u00fc"], ["ana", "bob"]):
        headers = [(b"X-Owner-Key", key.encode()) for key in keys]
        answer = await scene.http.get("/v1/builds", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_forms_of_other_pages_are_refused(scene: Scene) -> None:
    """A page of another origin can send these without being asked; JSON it can't."""
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {"X-Owner-Key": "ana", **({"Content-Type": kind} if kind else {})}
        answer = await scene.http.post("/v1/prune", content=b'{"ids": ["m0"]}', headers=headers)
        reported = (answer.status_code, answer.json()["error"]["code"])
        assert reported == (415, "unsupported_media_type")


async def test_other_origins_and_hosts_are_refused(scene: Scene) -> None:
    """Also where they ask whether they may; and no answer lets a page of theirs read it."""
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
    ):
        answer = await scene.http.post("/v1/prune", json={"ids": ["m0"]}, headers=headers)
        asked = await scene.http.options("/v1/prune", headers=headers)
        assert (answer.status_code, asked.status_code) == (status, status)
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_every_answer_forbids_what_pages_might_do(scene: Scene) -> None:
    """Errors too."""
    for path in ("/version", "/", "/robots.txt", "/v1/builds", "/v1/nothing"):
        headers = (await scene.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] in ("no-store", "no-cache")


async def test_a_token_is_required_on_every_path_that_does_something() -> None:
    """Before anything is read of the request."""
    async with serving({"token": TOKEN}) as scene:
        described = await scene.get("/v1/openapi.json", Authorization=f"Bearer {TOKEN}")
        for path, methods in described.json()["paths"].items():
            for method in methods:
                place = path.format(id="x", a="x", b="x")
                answer = await scene.http.request(method, place, content=b"?" * 100)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert TOKEN not in answer.text
        assert (await scene.get("/robots.txt")).status_code == 200


# --- too much, too slow ----------------------------------------------------------------------


async def test_a_body_that_is_too_large_is_not_read(scene: Scene) -> None:
    """Whether it says so or not; a request for a context may be as large as on the bus."""
    large = b'{"ids": ["' + b"x" * 3_000_000 + b'"]}'

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    for content in (large, chunks()):
        answer: Any = await scene.http.post("/v1/prune", content=content, headers=OWNER)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert "bus." not in answer.text
    said = asking(content={"current_input": "x", "nothing": "y" * 3_000_000})
    assert (await scene.http.post("/v1/build", json=said)).status_code == 200
    said = asking(content={"current_input": "x", "nothing": "y" * 5_000_000})
    answer = await scene.http.post("/v1/build", json=said)
    assert answer.status_code == 413
    assert "bus.max_payload_bytes" in answer.json()["error"]["detail"]


async def test_the_largest_body_is_answered(scene: Scene) -> None:
    """On its way over the bus, no spaces make it larger than allowed."""
    empty = json.dumps(asking(content={"current_input": "x", "nothing": []}), separators=(",", ":"))
    body = empty.replace("[]", "[" + "0," * 2_096_000 + "0]").encode()
    assert (await scene.http.post("/v1/build", content=body, headers=JSON)).status_code == 200


async def test_a_body_that_does_not_come_is_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it missed where its sender has gone."""
    monkeypatch.setattr(endpoint, "BODY_SECONDS", 0.05)
    head = (
        b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nX-Owner-Key: ana\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    assert (await raw(scene, head, b'{"ids"')).startswith(b"HTTP/1.1 408 ")
    host, port = scene.served.address.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(head)
    writer.close()
    await writer.wait_closed()


async def test_an_answer_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the request says; its place is free for others then."""
    monkeypatch.setattr(endpoint, "ANSWER_SECONDS", 0.05)
    async with serving({"concurrency": 1}, works=False) as scene:
        for number in range(2):
            answer = await scene.http.post("/v1/build", json=asking(id=f"msg_{number}"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "no_answer")


async def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are few, and others want them; half a head is nothing yet."""
    monkeypatch.setattr("service.http.serving.CLIENT_SECONDS", 0.05)
    async with serving() as scene:
        assert await raw(scene) == b""
        assert await raw(scene, b"GET / HTTP/1.1\r\nHos") == b""


@pytest.mark.parametrize("more", ["", "Content-Length: 1000\r\n"])
async def test_a_connection_that_stops_midway_is_closed(
    monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """Also after an answer: with half a head, or the rest of a body that nobody reads."""
    monkeypatch.setattr("service.http.serving.CLIENT_SECONDS", 0.2)
    async with serving() as scene:
        host, port = scene.served.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
        assert (await reader.readuntil(b"Disallow: /\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET / HT")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


async def test_slow_clients_lose_their_own_connections(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the address that holds most, the oldest; one that is busy with a request stays."""
    monkeypatch.setattr("service.http.serving.MOST_CONNECTIONS", 3)
    host, port = scene.served.address.removeprefix("http://").split(":")

    async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
        connection[1].write(b"GET /robots.txt HTTP/1.1\r\n")
        await asyncio.sleep(0.05)
        return connection

    elsewhere, *slow = [await connect(f"127.0.0.{n}") for n in (2, 3, 3, 3, 3)]
    for reader, writer in slow[:2]:
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
    for reader, writer in (elsewhere, *slow[2:]):
        writer.write(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold its connection, and what it doesn't read, for ever."""
    monkeypatch.setattr("service.http.serving.CLIENT_SECONDS", 0.2)
    async with serving() as scene:
        host, port = scene.served.address.removeprefix("http://").split(":")
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what is full soon
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=client, limit=1)
        with pytest.raises(ConnectionError):  # noqa: PT012 - it is cut off amid the writing
            async with asyncio.timeout(60):
                while True:
                    writer.write(b"GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
                    await writer.drain()
        assert not reader.at_eof()


async def test_two_lengths_are_refused_and_the_connection_is_closed(scene: Scene) -> None:
    """What follows could be somebody else's request to a proxy, and is not answered."""
    head = (
        b"POST /robots.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    host, port = scene.served.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + b"GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(60):
        answers = await reader.read()
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1
    writer.close()


async def test_the_number_of_listeners_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a connection; who goes makes room."""
    monkeypatch.setattr("service.http.interface.MOST_LISTENERS", 1)
    owner = {"X-Owner-Key": "ana"}
    async with serving() as scene:
        async with scene.http.stream("GET", "/v1/live", headers=owner) as live:
            await anext(live.aiter_lines())
            assert (await scene.get("/v1/live")).status_code == 429
        async with asyncio.timeout(60):
            while True:
                async with scene.http.stream("GET", "/v1/live", headers=owner) as live:
                    if live.status_code == 200:
                        break
