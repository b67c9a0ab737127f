"""Reading from a cluster whose nodes with our streams are all away."""

from collections.abc import Sequence
from typing import Any, cast

from service.adapters.redis.cluster_reading import ClusterReader
from service.adapters.redis.nodes import Nodes
from service.adapters.redis.reading import Reading
from service.adapters.redis.scripts import Call, Command


async def test_without_a_stream_that_can_be_read_there_is_nothing() -> None:
    """No stream has a group yet where the nodes of all are away as a worker starts."""
    asked: list[Call | Command] = []

    async def attempt(calls: Sequence[Call | Command]) -> list[Any]:
        asked.extend(calls)
        return []

    reader = ClusterReader(cast(Nodes, None), attempt)
    reading = Reading(group="g", consumer="c", keys=[], slots=3, wait=0.01, patience=1)

    assert await reader.read(reading) == []
    assert asked == []
