"""The servers behind a URL: one, or a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from service.adapters.bus_options import BusOptions
from service.adapters.redis.client import open_clients
from service.adapters.redis.cluster import open_cluster
from service.adapters.redis.servers import OneServer, Servers

#: What a URL's scheme has in it where it names a node of a cluster.
CLUSTER: Final = "+cluster"


@asynccontextmanager
async def open_servers(url: str, options: BusOptions) -> AsyncIterator[Servers]:
    """Connect; raises `BusError` where none answers, and `ConfigError`."""
    scheme, separator, rest = url.partition("://")
    if scheme.endswith(CLUSTER):
        plain = scheme.removesuffix(CLUSTER) + separator + rest
        async with open_cluster(plain, options) as cluster:
            yield cluster
        return
    async with open_clients(url, options) as clients:
        yield OneServer(clients)
