"""Reading from a cluster whose nodes are all unavailable."""

from typing import Any, cast

from service.adapters.redis.cluster import Cluster, Nodes
from service.adapters.redis.servers import Reading


async def test_without_a_stream_that_can_be_read_there_is_nothing() -> None:
    """No stream has a group yet if the nodes of all are unavailable as a worker starts."""
    nodes: Any = cast(Nodes, None)
    reading = Reading(group="g", consumer="c", keys=[], slots=3, wait=0.01, patience=1)

    assert await Cluster(nodes).read(reading) == []
