"""Manifests of builds on a Redis bus: a key each, which expires."""

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
        key = manifest_key(build_id, self._prefix)
        with bus_errors("store a manifest"):
            await self._commands.set(key, manifest, px=max(1, int(ttl_seconds * 1000)))

    async def get(self, build_id: str) -> bytes | None:
        """Return a build's manifest, or None."""
        with bus_errors("read a manifest"):
            found: Any = await self._commands.get(manifest_key(build_id, self._prefix))
        return None if found is None else bytes(found)
