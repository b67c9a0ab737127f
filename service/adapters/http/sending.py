"""Requests over the bus for callers over HTTP, who are told when the worker ends."""

import asyncio
from collections.abc import Mapping
from typing import Any

from service.inspector.building import Send
from service.inspector.errors import LateError
from service.wire import BuildResponse


class Sending:
    """Sends requests until `end`, which nobody has to wait for in vain."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(
        self, request: Mapping[str, Any], *, timeout_seconds: float | None = None
    ) -> BuildResponse:
        """Send a request and return the response; raises `LateError` where `end` comes first."""
        sending = asyncio.ensure_future(self._send(request, timeout_seconds=timeout_seconds))
        either: set[asyncio.Future[Any]] = {sending, self._end}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                return sending.result()
        finally:
            sending.cancel()
        raise LateError("the worker ends; another one may build the request yet")

    def end(self) -> None:
        """Tell all who wait that there will be no answer here."""
        self._end.set_result(None)
