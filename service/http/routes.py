"""The table of all endpoints, with the handlers of those that need no file of their own."""

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final

from starlette.responses import Response

from service.audit.reports import ContentMode
from service.http.builds import (
    FormQuery,
    PageQuery,
    WhatIfBody,
    diff_builds,
    list_builds,
    list_owners,
    show_build,
    show_form,
    what_if,
)
from service.http.endpoint import Endpoint, EndpointCall
from service.http.error_responses import json_response
from service.http.history_import import ImportBody, import_history
from service.http.live import live
from service.http.manual_pruning import (
    IDS_BYTES,
    IdsBody,
    ModelQuery,
    PruningTarget,
    history_status,
    preview_pruning,
    prune,
    undo_pruning,
)
from service.http.messages import MessagesQuery, list_messages
from service.http.openapi import document
from service.http.submit import build, recall
from service.http.timeline import TimelineQuery, timeline
from service.wire.protocol import SCHEMA_VERSION
from service.wire.recall import RecallRequest, RecallResponse
from service.wire.request import BuildRequest
from service.wire.response import BuildResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The version of the service, and what it serves."""

    version: str
    #: The version of the wire.
    schema_version: str
    #: Whether texts are shown, and whether contexts can be requested.
    content: ContentMode
    build: bool


async def version(call: EndpointCall) -> Version:
    """Return the version of the service, and what it serves."""
    return Version(
        version=metadata.version("ctxb"),
        schema_version=SCHEMA_VERSION,
        content=call.content,
        build=call.builder.settings.http.build,
    )


async def openapi(_call: EndpointCall) -> Response:
    """Return this document."""
    return json_response(await asyncio.to_thread(_description))


@cache
def _description() -> bytes:
    return json.dumps(document(ENDPOINTS)).encode()


#: In the order of the documentation.
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        build,
        "POST",
        "/v1/build",
        answer=BuildResponse,
        owned=False,
        body=BuildRequest,
        raw=True,
        costly=True,
        statuses=(409, 422, 504),
    ),
    Endpoint(
        recall,
        "POST",
        "/v1/recall",
        answer=RecallResponse,
        owned=False,
        body=RecallRequest,
        raw=True,
        costly=True,
        statuses=(409, 504),
    ),
    Endpoint(list_builds, "GET", "/v1/builds", query=PageQuery),
    Endpoint(list_owners, "GET", "/v1/owners", owned=False),
    Endpoint(show_build, "GET", "/v1/builds/{id}", costly=True, statuses=(404,)),
    Endpoint(
        show_form, "GET", "/v1/builds/{id}/raw", query=FormQuery, costly=True, statuses=(404,)
    ),
    Endpoint(diff_builds, "GET", "/v1/builds/{a}/diff/{b}", costly=True, statuses=(404, 409)),
    Endpoint(
        what_if,
        "POST",
        "/v1/builds/{id}/what-if",
        body=WhatIfBody,
        costly=True,
        statuses=(404, 409, 422),
    ),
    Endpoint(
        list_messages, "GET", "/v1/messages", query=MessagesQuery, costly=True, statuses=(404,)
    ),
    Endpoint(history_status, "GET", "/v1/history", query=ModelQuery),
    Endpoint(import_history, "POST", "/v1/history", body=ImportBody, raw=True, costly=True),
    Endpoint(timeline, "GET", "/v1/timeline", query=TimelineQuery),
    Endpoint(preview_pruning, "POST", "/v1/prune/preview", body=PruningTarget, costly=True),
    Endpoint(prune, "POST", "/v1/prune", body=IdsBody, body_bytes=IDS_BYTES, costly=True),
    Endpoint(
        undo_pruning, "POST", "/v1/prune/undo", body=IdsBody, body_bytes=IDS_BYTES, costly=True
    ),
    Endpoint(
        live,
        "GET",
        "/v1/live",
        answer=str,
        media_type="text/event-stream",
        headers={
            "Last-Event-ID": "The last event that was received; the stream continues after it."
        },
    ),
    Endpoint(version, "GET", "/version", owned=False),
    Endpoint(openapi, "GET", "/v1/openapi.json", answer=dict[str, Any], owned=False),
)
