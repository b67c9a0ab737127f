"""Files the manifests of builds, when their answers are out."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from service.backlog import WAITING, Backlog, held_bytes
from service.bus import ManifestStore
from service.config.settings import Settings
from service.errors import BusError
from service.gather import MANY_ROWS
from service.manifest import Manifest, unpacked
from service.provenance import Built, ground, make_manifest

log = structlog.get_logger()

#: Manifests that are written and stored in one go at most; each takes a tenth of a millisecond, and
#: under load, more than a few builds come between two goes.
BATCH: Final = 32


class Filing:
    """Keeps manifests in a store for a while; what goes wrong is logged and nothing else."""

    def __init__(self, store: ManifestStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings.manifests
        self.ground = ground(settings)
        self._backlog = Backlog(self._file, size=WAITING, batch=BATCH, weigh=held_bytes)

    def keep(self, built: Built | None) -> None:
        """Have a build filed by `run`; neither waits nor raises."""
        if built is None or not self._settings.ttl_seconds:
            return
        if not self._backlog.put(built):
            _lose(built, "too many others wait already")

    async def run(self) -> None:
        """File what is given to `keep`, until cancelled."""
        await self._backlog.run()

    async def drain(self) -> None:
        """Wait for `run` to file what it has, but not for long."""
        await self._backlog.drain()

    async def file(self, built: Built) -> None:
        """Store the manifest of a build, if any are stored."""
        await self._file([built])

    async def _file(self, builds: Sequence[Built]) -> None:
        """Store manifests in one go; those that can't be written are lost alone."""
        if not self._settings.ttl_seconds:
            return
        packed = {built.content.build_id: await self._packed(built) for built in builds}
        try:
            kept = {build_id: each for build_id, each in packed.items() if each is not None}
            await self._store.put_all(kept, self._settings.ttl_seconds)
        except BusError as error:
            for built in builds:
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
