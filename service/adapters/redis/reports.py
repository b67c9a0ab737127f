"""Build reports on a Redis bus: one key per report, which expires."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.adapters.redis.connection import bus_errors
from service.adapters.redis.keys import report_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, run, run_one


class RedisReports:
    """The `ReportStore` over one server, or a cluster."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Store reports by build id, in one round trip per server."""
        life = max(1, int(ttl_seconds * 1000))
        named = {report_key(build_id, self._prefix): report for build_id, report in reports.items()}
        calls = [Command(key, ("SET", key, value, "PX", life)) for key, value in named.items()]
        with bus_errors("store build reports"):
            await run(self._servers, calls)

    async def get(self, build_id: str) -> bytes | None:
        """Return the report of a build, or None."""
        key = report_key(build_id, self._prefix)
        with bus_errors("read a build report"):
            report: Any = await run_one(self._servers, Command(key, ("GET", key)))
        return None if report is None else bytes(report)

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a report, in one round trip per server."""
        keys = [report_key(build_id, self._prefix) for build_id in build_ids]
        with bus_errors("look for build reports"):
            counts = await run(self._servers, [Command(key, ("EXISTS", key)) for key in keys])
        return frozenset(name for name, count in zip(build_ids, counts, strict=True) if count)
