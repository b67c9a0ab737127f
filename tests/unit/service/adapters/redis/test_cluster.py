import socket
from contextlib import AsyncExitStack

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, NoPermissionError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.clients import make_clients
from service.adapters.redis.cluster import Cluster, Node, Nodes, Waiter, needs_steps
from service.adapters.redis.cluster_steps import SEND, UNSTORE, finish_in_steps
from service.adapters.redis.driver import Call, Command, Script
from service.adapters.redis.finishing import FINISH
from service.adapters.redis.scripts import CLAIM
from service.adapters.redis.servers import Reading


async def test_without_a_stream_that_can_be_read_there_is_nothing() -> None:
    """No stream has a group yet if the nodes of all are unavailable as a worker starts."""
    reading = Reading(group="g", consumer="c", keys=[], slots=3, wait=0.01, patience=1)
    async with AsyncExitStack() as stack:
        cluster = Cluster(Nodes(stack, "redis://127.0.0.1:1", BusOptions()))

        assert await cluster.read(reading) == []


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


async def test_a_connection_that_waits_must_be_answered_first() -> None:
    """A node that accepts and does not answer costs the time limit."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with AsyncExitStack() as stack:
            clients = make_clients(stack, f"redis://127.0.0.1:{port}", BusOptions())
            waiter = Waiter(Node("silent", clients), Command("PING", at=""))

            with pytest.raises(TimeoutError):
                await waiter.read(0.05)


async def test_subscriptions_try_one_node_after_the_other() -> None:
    """They start at the nearest; without known slots there is the node of the URL."""
    async with AsyncExitStack() as stack:
        nodes = Nodes(stack, "redis://127.0.0.1:1", BusOptions())
        cluster = Cluster(nodes)
        assert len(_subscribed_ports(cluster)) == 1

        for port in (1, 2, 3):
            nodes.move_slot(MovedError(f"{port} 127.0.0.1:{port}"))

        assert _subscribed_ports(cluster) == {1, 2, 3}


def _subscribed_ports(cluster: Cluster) -> set[int]:
    """Return the ports of the nodes to which three attempts would subscribe."""
    subscriptions = [cluster.pubsub("requests", attempt) for attempt in range(3)]
    return {each.connection_pool.connection_kwargs["port"] for each in subscriptions}


async def test_refusal_of_a_reply_outlasts_a_failing_cleanup() -> None:
    """The sender gets it, whatever becomes of the answer that was stored."""

    async def run(call: Command) -> object:
        script = call.script if isinstance(call, Call) else None
        if script is SEND:
            raise NoPermissionError("no permission")
        if script is UNSTORE:
            raise RedisConnectionError("lost")
        return b"send"

    arguments = ("g", "c", 1, "list", 1, 1, 1, 1, "first", "value", "1-0", "response", "replies")

    with pytest.raises(NoPermissionError):
        await finish_in_steps(run, Call(FINISH, ("stream", "result"), arguments))
