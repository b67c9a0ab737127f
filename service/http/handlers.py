"""The handlers of the endpoints."""

from importlib.metadata import version
from typing import Final

from starlette.responses import Response

from service.config.settings import Settings
from service.http.builds import Builds
from service.http.endpoint import EndpointCall, Slots
from service.http.error_responses import headers_of
from service.http.live import Feed, events, start_position
from service.http.manual_pruning import HistoryStatus, Marked, Preview, Pruning
from service.http.recent_builds import RecentBuilds
from service.http.submit import Submitter
from service.http.timeline import ShownTimeline, Timeline
from service.http.views import BuildPage, ShownBuild, ShownComparison, ShownForm, Version, WhatIf
from service.observe.tracing import trace_headers
from service.wire.protocol import SCHEMA_VERSION

#: Listeners to the live feed at the same time; each holds a connection.
MOST_LISTENERS: Final = 16


class Handlers:
    """Answers the calls of all endpoints."""

    def __init__(
        self,
        *,
        settings: Settings,
        recent: RecentBuilds,
        builds: Builds,
        pruning: Pruning,
        timeline: Timeline,
        submitter: Submitter,
        description: bytes,
    ) -> None:
        """``description`` is the OpenAPI document of the endpoints."""
        self._settings = settings
        self._recent = recent
        self._builds = builds
        self._pruning = pruning
        self._timeline = timeline
        self._submitter = submitter
        self._description = description
        self._listeners = Slots(MOST_LISTENERS, f"the live feed has {MOST_LISTENERS} listeners")

    async def build(self, call: EndpointCall) -> Response:
        """Build a context."""
        trace = trace_headers(*map(call.request.headers.get, ("traceparent", "tracestate")))
        status, response = await self._submitter.submit(call.body, trace)
        return Response(
            response.model_dump_json(),
            status_code=status,
            headers=headers_of(status),
            media_type="application/json",
        )

    async def list_builds(self, call: EndpointCall) -> BuildPage:
        """List the owner's builds."""
        query = call.query
        return await self._builds.newest(call.owner_key, query.limit, before=query.before)

    async def show_build(self, call: EndpointCall) -> ShownBuild:
        """Show a build."""
        return await self._builds.show(call.owner_key, call.path("id"))

    async def show_form(self, call: EndpointCall) -> ShownForm:
        """Show a build as the body of a provider's call."""
        return await self._builds.in_form(call.owner_key, call.path("id"), call.query.format)

    async def diff_builds(self, call: EndpointCall) -> ShownComparison:
        """Compare two builds."""
        return await self._builds.compare(call.owner_key, call.path("a"), call.path("b"))

    async def what_if(self, call: EndpointCall) -> WhatIf:
        """Build again with other options."""
        options = {name: getattr(call.body, name) for name in call.body.model_fields_set}
        return await self._builds.what_if(call.owner_key, call.path("id"), options)

    async def history_status(self, call: EndpointCall) -> HistoryStatus:
        """Show how full the owner's history is."""
        return await self._pruning.status(call.owner_key, call.query.model)

    async def timeline(self, call: EndpointCall) -> ShownTimeline:
        """Show the events of the owner's history."""
        return await self._timeline.of(call.owner_key, call.query.conversation_id)

    async def preview_pruning(self, call: EndpointCall) -> Preview:
        """Show what pruning would hide."""
        return await self._pruning.preview(call.owner_key, call.body)

    async def prune(self, call: EndpointCall) -> Marked:
        """Hide rows."""
        return await self._pruning.commit(call.owner_key, call.body.ids)

    async def undo_pruning(self, call: EndpointCall) -> Marked:
        """Restore hidden rows."""
        return await self._pruning.undo(call.owner_key, call.body.ids)

    async def live(self, call: EndpointCall) -> Response:
        """Stream builds as they are made."""
        if call.request.method == "HEAD":
            return Response(media_type=Feed.media_type)
        start = start_position(self._recent, call.request.headers.get("Last-Event-ID"))
        return Feed(events(self._recent, call.owner_key, start), self._listeners)

    async def version(self, _call: EndpointCall) -> Version:
        """Show the version."""
        http = self._settings.http
        return Version(
            version=version("context-builder"),
            schema_version=SCHEMA_VERSION,
            content=http.content,
            build=http.build,
        )

    async def openapi(self, _call: EndpointCall) -> Response:
        """Return the OpenAPI document."""
        return Response(self._description, media_type="application/json")
