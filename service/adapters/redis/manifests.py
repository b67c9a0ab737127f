"""Manifests of builds on a Redis bus: a key each, which expires."""

from typing import Any

from service.adapters.redis.client import bus_errors
from service.adapters.redis.keys import manifest_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, ask


class RedisManifests:
    """The `ManifestStore` over one server, or a cluster."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix

    async def put(self, build_id: str, manifest: bytes, ttl_seconds: float) -> None:
        """Keep a manifest for so many seconds."""
        key = manifest_key(build_id, self._prefix)
        with bus_errors("store a manifest"):
            life = max(1, int(ttl_seconds * 1000))
            await ask(self._servers, Command(key, ("SET", key, manifest, "PX", life)))

    async def get(self, build_id: str) -> bytes | None:
        """Return a build's manifest, or None."""
        with bus_errors("read a manifest"):
            key = manifest_key(build_id, self._prefix)
            found: Any = await ask(self._servers, Command(key, ("GET", key)))
        return None if found is None else bytes(found)
