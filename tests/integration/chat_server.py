"""A server for chat completions, which fails in the ways that a test sets."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server answers."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/json"
    #: Milliseconds that a client should wait before its next attempt.
    retry_after_ms: int = 1
    #: Says nothing at all, and keeps the connection.
    hangs: bool = False


def said(text: str | None, **choice: Any) -> Reply:
    """Return an answer with a text."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    answer = {"id": "c1", "object": "chat.completion", "created": 0, "model": "m"}
    return Reply(body=json.dumps({**answer, "choices": choices}).encode())


def failed(status: int, text: str = "trouble") -> Reply:
    """Return an error as OpenAI words it."""
    body = {"error": {"message": text, "type": "t", "code": "c"}}
    return Reply(status=status, body=json.dumps(body).encode())


@dataclass(slots=True)
class ChatServer:
    """The server, and what it was asked."""

    replies: list[Reply]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other, then close; the last reply is given again."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            pairs = (line.partition(":")[::2] for line in lines)
            headers = {name.strip().lower(): value.strip() for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.paths.append(first)
            self.headers.append(headers)
            self.asked.append(json.loads(body))
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            if reply.hangs:
                await reader.read()
            else:
                writer.write(_http(reply))
                await writer.drain()
        finally:
            writer.close()


def _http(reply: Reply) -> bytes:
    head = (
        f"HTTP/1.1 {reply.status} Reason\r\nContent-Type: {reply.kind}\r\n"
        f"Content-Length: {len(reply.body)}\r\nConnection: close\r\n"
        f"Retry-After-Ms: {reply.retry_after_ms}\r\n\r\n"
    )
    return head.encode() + reply.body


@asynccontextmanager
async def chat_server(replies: Sequence[Reply]) -> AsyncIterator[ChatServer]:
    """Serve on a free port of this machine."""
    chat = ChatServer(list(replies))
    server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    chat.url = f"http://127.0.0.1:{port}/v1"
    async with server:
        yield chat
