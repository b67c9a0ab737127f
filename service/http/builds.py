"""An owner's builds: found, compared, and made again in another way. Nothing is written."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from service.audit.compare import compare
from service.audit.manifest import Manifest, make_manifest
from service.audit.replay import NotReplayableError, built_from, made_again, sends_the_same
from service.audit.store import Filing
from service.build.report import Built, body_in
from service.builder import ContextBuilder
from service.errors import ContextBuilderError
from service.http.error_responses import NotFoundError
from service.http.recent_builds import Held, RecentBuilds
from service.http.views import (
    Content,
    ShownBuild,
    ShownComparison,
    ShownForm,
    explained,
    shown_build,
    shown_comparison,
    shown_manifest,
    shown_messages,
)
from service.wire.request import BuildRequest, RejectedError, decode, set_options

#: What a build id looks like; nothing else is asked of the bus.
BUILD_ID: Final = re.compile(r"bld_[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is of a build: its manifest, and itself where this worker built it of late."""

    manifest: Manifest
    held: Held | None

    @property
    def at(self) -> datetime:
        """Return when it was built."""
        return self.held.at if self.held else self.manifest.request.now


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A build as it would have been, beside the build as it was."""

    build: ShownBuild
    comparison: ShownComparison


class Builds:
    """The builds that a bus knows of, by owner. Raises `BusError` and `StoreError`."""

    def __init__(
        self, recent: RecentBuilds, filing: Filing, builder: ContextBuilder, shows: Content
    ) -> None:
        self._recent = recent
        self._filing = filing
        self._builder = builder
        self._shows = shows

    async def newest(
        self, owner_key: str, limit: int, *, before: int | None = None
    ) -> tuple[list[Held], int | None]:
        """Return builds of an owner, newest first, and the number from which to go on, if any."""
        found = list(self._recent.of(owner_key, before=before))[: limit + 1]
        page = await self._present(found[:limit])
        return page, found[limit - 1].number if len(found) > limit else None

    async def find(self, owner_key: str, build_id: str) -> Known:
        """Return a build; raises `NotFoundError`, for those of others as for those that are not."""
        missing = NotFoundError(
            "this owner has no such build: it has expired, or was erased, or is somebody else's"
        )
        if not BUILD_ID.fullmatch(build_id):
            raise missing
        manifest = await self._filing.find(build_id)
        if manifest is None:
            self._recent.drop(build_id)
            raise missing
        if manifest.request.owner_key != owner_key:
            raise missing
        return Known(manifest=manifest, held=self._recent.find(build_id))

    async def show(self, known: Known) -> ShownBuild:
        """Return all that may be shown of a build."""
        manifest = known.manifest
        if known.held:
            built = known.held.built
            return shown_build(built, known.at, manifest.strategy, self._shows)
        shown = shown_manifest(manifest, self._shows)
        if self._shows == "redacted":
            return shown
        try:
            again = await self._again(manifest)
        except NotReplayableError as error:
            return replace(shown, unavailable=error.detail)
        return replace(
            shown,
            messages=shown_messages(again.content, self._shows),
            decisions=explained(again).decisions,
        )

    async def in_form(self, known: Known, form: str) -> ShownForm:
        """Return the context of a build as the body of a provider's call."""
        shown = ShownForm(format=form, body=None, content=self._shows)
        if self._shows == "redacted":
            return shown
        try:
            built = await self._built(known)
        except NotReplayableError as error:
            return replace(shown, unavailable=error.detail)
        body = await asyncio.to_thread(body_in, form, built.request, built.fitted, built.content)
        return replace(shown, body=body)

    async def compare(self, a: Known, b: Known) -> ShownComparison:
        """Compare two builds; raises `NotReplayableError` where one's contents are gone."""
        first, second = await self._built(a), await self._built(b)
        found = await asyncio.to_thread(compare, explained(first), explained(second))
        return shown_comparison(found, (a.manifest.build_id, b.manifest.build_id), self._shows)

    async def what_if(self, known: Known, wishes: Mapping[str, Any]) -> WhatIf:
        """Build again with other options, on the rows that the build had read.

        Raises:
            NotReplayableError: The build's contents are gone.
            ContextBuilderError: It can't be built like that.
        """
        then = await self._built(known)
        request = _changed(then.request, known.manifest, wishes)
        now = await built_from(known.manifest, self._builder, request)
        found = await asyncio.to_thread(compare, explained(then), explained(now))
        strategy = make_manifest(now, known.manifest.ground).strategy
        return WhatIf(
            build=shown_build(now, known.at, strategy, self._shows),
            comparison=shown_comparison(
                found, (known.manifest.build_id, now.content.build_id), self._shows
            ),
        )

    async def _present(self, page: Sequence[Held]) -> list[Held]:
        """Return the builds that have a manifest still; what is erased on the bus is given up.

        All are asked for in one go: with a connection each, a few lists would leave the worker
        none for its own requests.
        """
        names = [held.built.content.build_id for held in page]
        present = await self._filing.present(names) if names else frozenset()
        for name in names:
            if name not in present:
                self._recent.drop(name)
        return [held for held, name in zip(page, names, strict=True) if name in present]

    async def _built(self, known: Known) -> Built:
        return known.held.built if known.held else await self._again(known.manifest)

    async def _again(self, manifest: Manifest) -> Built:
        """Build again what another worker built; raises unless the same comes of it."""
        request = await made_again(manifest, self._builder.history)
        try:
            built = await built_from(manifest, self._builder, request)
        except ContextBuilderError as error:
            raise NotReplayableError(f"it can't be built any more: {error.detail}") from error
        if not sends_the_same(manifest, make_manifest(built, manifest.ground)):
            raise NotReplayableError(
                "another worker built it, and something has changed since: built again, it sends"
                " other messages"
            )
        return built


def _changed(request: BuildRequest, manifest: Manifest, wishes: Mapping[str, Any]) -> BuildRequest:
    """Return a request with other options, at the same moment; raises as `decode` does."""
    raw = request.model_dump(mode="json", exclude_unset=True)
    set_options(raw, {**wishes, "explain": True})
    try:
        return decode(json.dumps(raw).encode(), received_at=manifest.request.now)
    except RejectedError as rejected:
        raise rejected.error from rejected
