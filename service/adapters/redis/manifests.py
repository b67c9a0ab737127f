"""Manifests of builds on a Redis bus: a key each, which expires."""

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from service.adapters.redis.client import bus_errors
from service.adapters.redis.keys import manifest_key


class RedisManifests:
    """The `ManifestStore` over one server."""

    def __init__(self, commands: Redis, prefix: str) -> None:
        self._commands = commands
        self._prefix = prefix

    async def put(self, build_id: str, manifest: bytes, ttl_seconds: float) -> None:
        """Keep a manifest for so many seconds."""
        await self.put_all({build_id: manifest}, ttl_seconds)

    async def put_all(self, manifests: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Keep manifests by their builds' ids, all in one round trip."""
        milliseconds = max(1, int(ttl_seconds * 1000))
        with bus_errors("store manifests"):
            async with self._commands.pipeline(transaction=False) as pipeline:
                for build_id, manifest in manifests.items():
                    pipeline.set(manifest_key(build_id, self._prefix), manifest, px=milliseconds)
                await pipeline.execute()

    async def get(self, build_id: str) -> bytes | None:
        """Return a build's manifest, or None."""
        with bus_errors("read a manifest"):
            found: Any = await self._commands.get(manifest_key(build_id, self._prefix))
        return None if found is None else bytes(found)
