from typing import Any, cast

import pytest

from service.adapters.redis.cluster import Cluster, Nodes, needs_steps
from service.adapters.redis.finishing import FINISH
from service.adapters.redis.scripts import CLAIM, Call, Script
from service.adapters.redis.servers import Reading


async def test_without_a_stream_that_can_be_read_there_is_nothing() -> None:
    """No stream has a group yet if the nodes of all are unavailable as a worker starts."""
    nodes: Any = cast(Nodes, None)
    reading = Reading(group="g", consumer="c", keys=[], slots=3, wait=0.01, patience=1)

    assert await Cluster(nodes).read(reading) == []


@pytest.mark.parametrize(
    ("script", "keys", "expected"),
    [
        (FINISH, ("stream.{0}", "result.{0}.1", "result.{0}.2"), False),
        (FINISH, ("stream.{0}", "result.{0}.1", "replies"), True),
        (FINISH, ("{p}.stream", "{p}.result", "{p}.replies"), False),
        (CLAIM, ("stream.{0}",), False),
    ],
)
def test_only_keys_of_several_slots_need_steps(
    script: Script, keys: tuple[str, ...], expected: bool
) -> None:
    """A prefix in braces puts all keys into one slot: then a cluster has atomic steps as well."""
    assert needs_steps(Call(script, keys, ())) is expected
