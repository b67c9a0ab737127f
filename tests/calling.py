"""Calls of endpoints of the HTTP interface, without a connection."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from starlette.requests import Request

from service.adapters.memory.hub import MemoryReports
from service.aio import Admission
from service.audit.reports import ContentMode
from service.builder import ContextBuilder
from service.http.endpoint import EndpointCall, Services
from service.http.recent_builds import RecentBuilds
from service.ports.bus import ReportStore
from service.wire.response import BuildResponse


async def _refuse(*_args: object, **_options: object) -> Any:
    raise AssertionError("nothing is sent")


def services(
    builder: ContextBuilder,
    content: ContentMode,
    reports: ReportStore | None = None,
    recent: RecentBuilds | None = None,
    send: Callable[..., Awaitable[BuildResponse]] = _refuse,
) -> Services:
    """Return what the handlers of a worker have, which shows texts or not."""
    http = builder.settings.http.model_copy(update={"content": content})
    settings = builder.settings.model_copy(update={"http": http})
    return Services(
        builder=replace(builder, settings=settings),
        recent=recent or RecentBuilds(size=10, seconds=60),
        reports=reports or MemoryReports(),
        send=send,
        admission=Admission(settings.worker.max_inflight_bytes),
        closed=asyncio.get_running_loop().create_future(),
        listeners=asyncio.Semaphore(1),
    )


def calling(
    served: Services, owner: str, *, query: object = None, body: object = None, **path: str
) -> EndpointCall:
    """Return a call; ``path`` are the parameters of the path."""
    request = Request({"type": "http", "path_params": path, "headers": []})
    return EndpointCall(services=served, request=request, owner_key=owner, query=query, body=body)
