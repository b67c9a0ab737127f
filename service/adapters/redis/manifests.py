"""Manifests of builds on a Redis bus: a key each, which expires."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.adapters.redis.connection import bus_errors
from service.adapters.redis.keys import manifest_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.server import Servers, run, run_one


class RedisManifests:
    """The `ManifestStore` over one server, or a cluster."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix

    async def put(self, build_id: str, manifest: bytes, ttl_seconds: float) -> None:
        """Keep a manifest for so many seconds."""
        await self.put_all({build_id: manifest}, ttl_seconds)

    async def put_all(self, manifests: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Keep manifests by their builds' ids, all in one round trip to each server."""
        life = max(1, int(ttl_seconds * 1000))
        named = {manifest_key(each, self._prefix): value for each, value in manifests.items()}
        calls = [Command(key, ("SET", key, value, "PX", life)) for key, value in named.items()]
        with bus_errors("store manifests"):
            await run(self._servers, calls)

    async def get(self, build_id: str) -> bytes | None:
        """Return a build's manifest, or None."""
        with bus_errors("read a manifest"):
            key = manifest_key(build_id, self._prefix)
            found: Any = await run_one(self._servers, Command(key, ("GET", key)))
        return None if found is None else bytes(found)

    async def present(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a manifest, in one round trip to each server."""
        keys = [manifest_key(each, self._prefix) for each in build_ids]
        with bus_errors("look for manifests"):
            found = await run(self._servers, [Command(key, ("EXISTS", key)) for key in keys])
        return frozenset(each for each, there in zip(build_ids, found, strict=True) if there)
