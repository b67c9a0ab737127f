"""The table of all endpoints, with the handlers of those that need no file of their own."""

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final

from starlette.responses import Response

from service.audit.reports import ContentMode
from service.http import builds, history_import, live, manual_pruning, messages, submit, timeline
from service.http.endpoint import Endpoint, EndpointCall
from service.http.error_responses import json_response
from service.http.openapi import document
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
        submit.build,
        "POST",
        "/v1/build",
        answer=BuildResponse,
        owned=False,
        body=BuildRequest,
        raw=True,
        costly=True,
        statuses=(403, 408, 409, 422, 503, 504),
    ),
    Endpoint(
        submit.recall,
        "POST",
        "/v1/recall",
        answer=RecallResponse,
        owned=False,
        body=RecallRequest,
        raw=True,
        costly=True,
        statuses=(403, 408, 409, 503, 504),
    ),
    Endpoint(builds.list_builds, "GET", "/v1/builds", query=builds.PageQuery, statuses=(503,)),
    Endpoint(builds.list_owners, "GET", "/v1/owners", owned=False, statuses=(503,)),
    Endpoint(builds.show_build, "GET", "/v1/builds/{id}", costly=True, statuses=(404, 503)),
    Endpoint(
        builds.show_form,
        "GET",
        "/v1/builds/{id}/raw",
        query=builds.FormQuery,
        costly=True,
        statuses=(404, 503),
    ),
    Endpoint(
        builds.diff_builds, "GET", "/v1/builds/{a}/diff/{b}", costly=True, statuses=(404, 409, 503)
    ),
    Endpoint(
        builds.what_if,
        "POST",
        "/v1/builds/{id}/what-if",
        body=builds.WhatIfBody,
        costly=True,
        statuses=(404, 409, 422, 503),
    ),
    Endpoint(
        messages.list_messages,
        "GET",
        "/v1/messages",
        query=messages.MessagesQuery,
        costly=True,
        statuses=(404, 503),
    ),
    Endpoint(
        manual_pruning.history_status,
        "GET",
        "/v1/history",
        query=manual_pruning.ModelQuery,
        statuses=(503,),
    ),
    Endpoint(
        history_import.import_history,
        "POST",
        "/v1/history",
        body=history_import.ImportBody,
        raw=True,
        costly=True,
        statuses=(503,),
    ),
    Endpoint(
        timeline.timeline, "GET", "/v1/timeline", query=timeline.TimelineQuery, statuses=(503,)
    ),
    Endpoint(
        manual_pruning.preview_pruning,
        "POST",
        "/v1/prune/preview",
        body=manual_pruning.PruningTarget,
        costly=True,
        statuses=(503,),
    ),
    Endpoint(
        manual_pruning.prune,
        "POST",
        "/v1/prune",
        body=manual_pruning.IdsBody,
        body_bytes=manual_pruning.IDS_BYTES,
        costly=True,
        statuses=(503,),
    ),
    Endpoint(
        manual_pruning.undo_pruning,
        "POST",
        "/v1/prune/undo",
        body=manual_pruning.IdsBody,
        body_bytes=manual_pruning.IDS_BYTES,
        costly=True,
        statuses=(503,),
    ),
    Endpoint(
        live.live,
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
