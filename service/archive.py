"""Files the manifests of builds, when their answers are out."""

import asyncio
from typing import Final

import structlog

from service.backlog import Backlog
from service.bus import ManifestStore
from service.config.settings import Settings
from service.errors import BusError
from service.manifest import Manifest, unpacked
from service.provenance import Built, ground, make_manifest

log = structlog.get_logger()

#: Builds that wait to be filed; they hold all that was read, so there is a bound.
WAITING: Final = 256
#: Rows from which on a manifest is written in a thread, so that the event loop stays free.
MANY_ROWS: Final = 500
#: Seconds for what still waits when a worker ends.
DRAIN: Final = 2.0


class Archive:
    """Keeps manifests in a store for a while; what goes wrong is logged and nothing else."""

    def __init__(self, store: ManifestStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings.manifests
        self.ground = ground(settings)
        self._backlog = Backlog(self.file, size=WAITING)

    def keep(self, built: Built | None) -> None:
        """Have a build filed by `run`; neither waits nor raises."""
        if built is None or not self._settings.ttl_seconds:
            return
        if not self._backlog.put(built):
            _lose(built, f"{WAITING} others wait already")

    async def run(self) -> None:
        """File what is given to `keep`, until cancelled."""
        await self._backlog.run()

    async def drain(self) -> None:
        """Wait for `run` to file what it has, but not for long."""
        await self._backlog.drain(DRAIN)

    async def file(self, built: Built) -> None:
        """Store the manifest of a build, if any are stored."""
        if not self._settings.ttl_seconds:
            return
        try:
            await self._put(built)
        except (BusError, ValueError, TypeError) as error:
            _lose(built, str(error))

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

    async def _put(self, built: Built) -> None:
        packed = await self._packed(built)
        if len(packed) > self._settings.max_bytes:
            raise ValueError(f"its manifest has {len(packed)} bytes")
        await self._store.put(built.content.build_id, packed, self._settings.ttl_seconds)

    async def _packed(self, built: Built) -> bytes:
        if built.gathered.history.read < MANY_ROWS:
            return make_manifest(built, self.ground).packed()
        return await asyncio.to_thread(lambda: make_manifest(built, self.ground).packed())


def _lose(built: Built, reason: str) -> None:
    log.warning("manifest.lost", build_id=built.content.build_id, reason=reason)
