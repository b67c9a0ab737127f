"""What is done on each route."""

from importlib.metadata import version
from typing import Final

from starlette.responses import Response

from service.config.settings import Settings
from service.http.building import Building
from service.http.builds import Builds, WhatIf
from service.http.error_responses import headers_of
from service.http.live import Feed, events, position
from service.http.pruning import Aim, HistoryStatus, Marked, Preview, Pruning
from service.http.recent_builds import RecentBuilds
from service.http.requests import Page, Version
from service.http.route import Asked, Slots
from service.http.timeline import ShownTimeline, Timeline
from service.http.views import ShownBuild, ShownComparison, ShownForm, summary_of
from service.observe.tracing import trace_headers
from service.wire.protocol import SCHEMA_VERSION

#: Listeners to the live feed at the same time; each holds a connection.
MOST_LISTENERS: Final = 16


class Desk:
    """Answers what comes in on the routes."""

    def __init__(
        self,
        *,
        settings: Settings,
        recent: RecentBuilds,
        builds: Builds,
        pruning: Pruning,
        timeline: Timeline,
        building: Building,
        description: bytes,
    ) -> None:
        """Take what the routes need; ``description`` is their own, as JSON."""
        self._settings = settings
        self._recent = recent
        self._builds = builds
        self._pruning = pruning
        self._timeline = timeline
        self._building = building
        self._description = description
        self._listeners = Slots(MOST_LISTENERS, f"{MOST_LISTENERS} listen already")

    async def build(self, asked: Asked) -> Response:
        """Build a context."""
        named = (asked.request.headers.get(key) for key in ("traceparent", "tracestate"))
        status, response = await self._building.answer(asked.body, trace_headers(*named))
        return Response(
            response.model_dump_json(),
            status_code=status,
            headers=headers_of(status),
            media_type="application/json",
        )

    async def list_builds(self, asked: Asked) -> Page:
        """List the owner's builds."""
        held, following = await self._builds.newest(
            asked.owner_key, asked.query.limit, before=asked.query.before
        )
        return Page(builds=[summary_of(each) for each in held], next=following)

    async def show_build(self, asked: Asked) -> ShownBuild:
        """Show one of them."""
        return await self._builds.show(await self._builds.find(asked.owner_key, asked.path("id")))

    async def show_form(self, asked: Asked) -> ShownForm:
        """Show one of them as the body of a provider's call."""
        known = await self._builds.find(asked.owner_key, asked.path("id"))
        return await self._builds.in_form(known, asked.query.format)

    async def diff(self, asked: Asked) -> ShownComparison:
        """Compare two of them."""
        a, b = [await self._builds.find(asked.owner_key, asked.path(side)) for side in ("a", "b")]
        return await self._builds.compare(a, b)

    async def what_if(self, asked: Asked) -> WhatIf:
        """Build one of them in another way."""
        known = await self._builds.find(asked.owner_key, asked.path("id"))
        wishes = {name: getattr(asked.body, name) for name in asked.body.model_fields_set}
        return await self._builds.what_if(known, wishes)

    async def status(self, asked: Asked) -> HistoryStatus:
        """Tell how full the owner's history is."""
        return await self._pruning.status(asked.owner_key, asked.query.model)

    async def events(self, asked: Asked) -> ShownTimeline:
        """Tell what has become of the owner's history."""
        return await self._timeline.of(asked.owner_key, asked.query.conversation_id)

    async def preview(self, asked: Asked) -> Preview:
        """Tell what pruning would hide."""
        return await self._pruning.preview(asked.owner_key, Aim(**asked.body.model_dump()))

    async def prune(self, asked: Asked) -> Marked:
        """Hide rows."""
        return await self._pruning.commit(asked.owner_key, asked.body.ids)

    async def undo(self, asked: Asked) -> Marked:
        """Show them again."""
        return await self._pruning.undo(asked.owner_key, asked.body.ids)

    async def live(self, asked: Asked) -> Response:
        """Tell of builds as they come."""
        if asked.request.method == "HEAD":
            return Response(media_type=Feed.media_type)
        begin = position(self._recent, asked.request.headers.get("Last-Event-ID"))
        return Feed(events(self._recent, asked.owner_key, begin), self._listeners)

    async def version(self, _asked: Asked) -> Version:
        """Tell what answers."""
        http = self._settings.http
        return Version(
            version=version("context-builder"),
            schema_version=SCHEMA_VERSION,
            content=http.content,
            build=http.build,
        )

    async def describe(self, _asked: Asked) -> Response:
        """Give the description of all routes."""
        return Response(self._description, media_type="application/json")
