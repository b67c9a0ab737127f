"""Files the manifests of builds, when their answers are out."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from service.audit.manifest import Manifest, ground, make_manifest, unpacked
from service.build.after_answer import BuildQueue, Losses
from service.build.history import MANY_ROWS
from service.build.report import Built
from service.config.settings import Settings
from service.errors import BusError
from service.ports.bus import ReportStore

log = structlog.get_logger(__name__)

#: Manifests that are written and stored in one go at most; each takes a tenth of a millisecond, and
#: under load, more than a few builds come between two goes.
BATCH: Final = 32


class Filing:
    """Keeps manifests in a store for a while; what goes wrong is logged and nothing else."""

    def __init__(
        self,
        store: ReportStore,
        settings: Settings,
        filed: Callable[[Built], object] | None = None,
    ) -> None:
        """Keep manifests in a store; ``filed`` is told of each build whose manifest is there."""
        self._store = store
        self._filed = filed
        self._settings = settings.manifests
        self.ground = ground(settings)
        self._losses = Losses(_lose, _resume)
        #: Files builds in the background.
        self.queue = BuildQueue(self._file, self._is_wanted, self._losses, batch=BATCH)

    async def file(self, built: Built) -> None:
        """Store the manifest of a build, if any are stored."""
        if self._is_wanted(built):
            await self._file([built])

    def _is_wanted(self, _built: Built) -> bool:
        return self._settings.ttl_seconds > 0

    async def _file(self, builds: Sequence[Built]) -> None:
        """Store manifests in one go; those that can't be written are lost alone."""
        packed = {built.content.build_id: await self._packed(built) for built in builds}
        try:
            kept = {build_id: each for build_id, each in packed.items() if each is not None}
            await self._store.put(kept, self._settings.ttl_seconds)
        except BusError as error:
            self._losses.add(builds, str(error))
            return
        self.queue.succeeded()
        for built in builds:
            if self._filed and built.content.build_id in kept:
                self._filed(built)

    async def find(self, build_id: str) -> Manifest | None:
        """Return the manifest of a build, or None; raises `BusError`.

        None as well where what is stored is none that this version understands.
        """
        packed = await self._store.get(build_id)
        if packed is None:
            return None
        try:
            return unpacked(packed)
        except ValueError as error:
            log.warning("manifest.unreadable", build_id=build_id, reason=type(error).__name__)
            return None

    async def present(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a manifest still; raises `BusError`."""
        return await self._store.present(build_ids)

    async def _packed(self, built: Built) -> bytes | None:
        """Write a manifest as it is stored; None where that can't be, which is logged."""
        try:
            if built.gathered.history.read < MANY_ROWS:
                packed = make_manifest(built, self.ground).packed()
            else:
                packed = await asyncio.to_thread(lambda: make_manifest(built, self.ground).packed())
        except (ValueError, TypeError) as error:
            _lose(built, str(error))
            return None
        if len(packed) <= self._settings.max_bytes:
            return packed
        _lose(built, f"its manifest has {len(packed)} bytes")
        return None


def _lose(built: Built, reason: str) -> None:
    log.warning("manifest.lost", build_id=built.content.build_id, reason=reason)


def _resume(lost: int) -> None:
    log.info("manifest.resumed", lost=lost)
