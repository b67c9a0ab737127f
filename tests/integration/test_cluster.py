"""What only a cluster can do to the bus: nodes that die, slots that move, steps that fall apart."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import redis.asyncio as redis
from redis import Redis as Client
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from service.adapters.bus_options import BusOptions
from service.adapters.embedded.binaries import bundled_server
from service.adapters.redis.bus import RedisBus, open_redis_bus
from service.adapters.redis.driver import Command
from service.adapters.redis.shards import shard_topic, shards_key
from service.errors import BusError, ConfigError, OverloadedError
from service.ports.bus import AnswerOutcome, Bus, Delivery, Identity
from service.wire.protocol import Topics
from service.wire.response import StoredResult
from service.worker.client import NoAnswerError
from service.worker.ingress import RecallStream
from tests.bus_server import RealServer
from tests.integration.bus_places import (
    ASKED,
    SHORT,
    RedisPlace,
    answer,
    payloads,
    received,
    taken_over,
    until,
)
from tests.integration.real_cluster import RealCluster
from tests.integration.test_closed_servers import Change, empty, fill, in_work, mend, spoil
from tests.integration.test_shards import of_each_shard, request_of
from tests.integration.test_worker import Crew, asking, open_crew
from tests.support import lacking

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SHARDS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Give a cluster which these tests alone use, and leave whole."""
    binary = bundled_server()
    if binary is None:
        lacking("no server to make a cluster of")
    started = RealCluster(binary, tmp_path_factory.mktemp("own-cluster"))
    started.start()
    yield started
    started.stop()


@pytest.fixture
async def own(cluster: RealCluster, prefix: str) -> AsyncIterator[RedisPlace]:
    """Give a place on that cluster, of four shards."""
    async with AsyncExitStack() as stack:
        nodes = redis.RedisCluster.from_url(cluster.url.replace("+cluster", ""))
        client: Any = await stack.enter_async_context(nodes)
        place = RedisPlace(stack, cluster.url, prefix, client)
        await place.divide(SHARDS)
        yield place


def holder(cluster: RealCluster, key: str) -> RealServer:
    """Return the node that has a key."""
    with cluster.nodes[0].client() as client:
        slots = client.execute_command("CLUSTER SLOTS")
    port = next(node[1] for low, high, node, *_ in slots if low <= key_slot(key.encode()) <= high)
    return next(node for node in cluster.nodes if node.port == port)


# --- nodes that die --------------------------------------------------------------------------


async def test_other_shards_go_on_without_a_node(cluster: RealCluster, own: RedisPlace) -> None:
    """A node is killed: requests of the others are answered, its own when it is there again."""
    owners = of_each_shard(SHARDS)
    streams = [own.prefix + shard_topic(number, SHARDS) for number in range(SHARDS)]
    async with open_crew(own, bus={"socket_timeout_seconds": 10}) as crew:
        await crew.hire()
        victim = holder(cluster, shards_key(own.prefix))
        lost = [n for n, stream in enumerate(streams) if holder(cluster, stream) is victim]
        assert len(lost) < SHARDS
        waiting = [asking(id=f"late-{n}", owner_key=owners[n]) for n in lost]
        victim.kill()
        try:
            with capture_logs() as logged:
                for number in set(range(SHARDS)) - set(lost):
                    request = asking(id=f"msg-{number}", owner_key=owners[number])
                    assert await until(partial(answered, crew, request))
                for request in waiting:
                    with pytest.raises(BusError):
                        await crew.client.send(request)
        finally:
            victim.start()
            await asyncio.to_thread(cluster.settle)
        assert "bus.node_away" in {line["event"] for line in logged}

        for request in waiting:
            assert await until(partial(answered, crew, request))


async def test_other_recalls_go_on_without_a_node(cluster: RealCluster, own: RedisPlace) -> None:
    """Those after a recall for the lost node, on the same stream, are moved; it waits there."""
    entrance = holder(cluster, own.prefix + Topics.CONTEXT_RECALL_REQUEST)
    streams = [own.prefix + shard_topic(number, SHARDS) for number in range(SHARDS)]
    holders = [holder(cluster, stream) for stream in streams]
    victim = next(node for node in holders if node is not entrance)
    lost = [
        owner for owner, node in zip(of_each_shard(SHARDS), holders, strict=True) if node is victim
    ]
    others = set(of_each_shard(SHARDS)) - set(lost)
    bus = await own.open("one", lease_seconds=1, socket_timeout_seconds=10)
    await bus.request_shards.count()
    for owner in (*lost, *others):
        await bus.append(Topics.CONTEXT_RECALL_REQUEST, request_of(owner))
    moved: set[str] = set()

    async def moves(owners: set[str], *, claims: bool = False) -> bool:
        with suppress(BusError):
            if claims:
                await RecallStream(bus).claim()
            moved.update(owner_of(each) for each in await bus.requests.receive(SHARDS, wait=0.1))
        return moved == owners

    victim.kill()
    try:
        with pytest.raises(BusError):
            await RecallStream(bus).take_new()
        assert await until(partial(moves, others))
    finally:
        victim.start()
        await asyncio.to_thread(cluster.settle)

    assert await until(partial(moves, {*lost, *others}, claims=True))


def owner_of(delivery: Delivery) -> str:
    """Return whose request it is."""
    return str(json.loads(delivery.payload)["owner_key"])


def isolate(server: RealServer, client: Client) -> None:
    """Let it want a replica, which it has not."""
    client.config_set("min-replicas-to-write", 1)


def contend(server: RealServer, client: Client) -> None:
    """Let it want none."""
    client.config_set("min-replicas-to-write", 0)


@pytest.mark.parametrize(("close", "reopen"), [(fill, empty), (spoil, mend), (isolate, contend)])
async def test_other_shards_go_on_next_to_a_closed_node(
    cluster: RealCluster, own: RedisPlace, close: Change, reopen: Change
) -> None:
    """Full, unsaved or alone: requests of the others are answered, its own when it is open."""
    owners = of_each_shard(SHARDS)
    streams = [own.prefix + shard_topic(number, SHARDS) for number in range(SHARDS)]
    victim = holder(cluster, streams[0])
    lost = [n for n, stream in enumerate(streams) if holder(cluster, stream) is victim]
    others = sorted(set(range(SHARDS)) - set(lost))
    async with open_crew(own) as crew:
        await crew.hire()
        await crew.dismiss()
        # more than the worker has places for
        waiting = [
            asking(id=f"late-{n}", owner_key=owners[lost[0]])
            for n in range(2 * crew.builder.settings.worker.concurrency)
        ]
        for request in waiting:
            await crew.bus.submit(json.dumps(request).encode())
        with victim.client() as client, capture_logs() as logged:
            close(victim, client)
            try:
                await crew.hire()
                late = asking(id="heard", owner_key=owners[lost[0]])
                heard = asyncio.create_task(crew.client.send(late, via="channel"))
                for number in others:
                    request = asking(owner_key=owners[number])
                    await crew.client.send(request, via="channel")
                for number in others * 3:
                    request = asking(id=uuid.uuid4().hex, owner_key=owners[number])
                    assert await until(partial(answered, crew, request))
                with pytest.raises(OverloadedError):
                    await crew.client.send(asking(owner_key=owners[lost[0]]))
            finally:
                reopen(victim, client)
            assert (await heard).content.status == "success"
            await until(partial(settled, crew.bus))
        for request in waiting:
            assert await until(partial(answered, crew, request))
        assert await crew.dismiss() == [True]
    events = [line["event"] for line in logged]
    assert events.count("bus.node_away") == events.count("bus.node_back") == 2  # the client's too
    buried = await own.stream(own.prefix + Topics.CONTEXT_BUILD_DEAD)
    assert {each["data"] for each in buried} <= {b"ping"}  # by which the crew sees who listens


async def settled(bus: Bus) -> bool:
    """Say whether nothing waits or is in work, once all nodes can be asked."""
    try:
        return await in_work(bus, 0)
    except BusError:
        return False


async def answered(crew: Crew, request: dict[str, Any]) -> bool:
    """Say whether a request is answered with a context; a reply may be lost with its node."""
    try:
        response = await crew.client.send(request, timeout_seconds=1)
    except (BusError, NoAnswerError):
        return False
    return response.content.status == "success"


async def test_answer_of_a_lost_node_holds_nobody_up(cluster: RealCluster, own: RedisPlace) -> None:
    """It is left with its delivery, which is pending there; the batch goes out."""
    owners = of_each_shard(SHARDS)
    async with open_redis_bus(
        cluster.url, BusOptions(prefix=own.prefix, lease_seconds=SHORT)
    ) as bus:
        for owner in owners:
            await bus.submit(request_of(owner))
        deliveries = await received(bus)
        home = {each.source: holder(cluster, own.prefix + each.source) for each in deliveries}
        victim = home[deliveries[0].source]
        victim.kill()
        try:
            receipts = await bus.finish([answer(each) for each in deliveries])
        finally:
            victim.start()
            await asyncio.to_thread(cluster.settle)

        assert [each.outcome for each in receipts] == [
            AnswerOutcome.NOT_MINE if home[each.source] is victim else AnswerOutcome.SENT
            for each in deliveries
        ]
        again = await until(lambda: claimed_from(bus))
        assert all(home[each.source] is victim for each in again)


async def claimed_from(bus: RedisBus) -> Sequence[Any]:
    """Claim, where that is possible."""
    try:
        return await bus.requests.claim(10)
    except BusError:
        return []


@pytest.mark.parametrize("everywhere", [False, True])
async def test_frozen_nodes_cost_a_read_the_time_limit(
    cluster: RealCluster, prefix: str, everywhere: bool
) -> None:
    """A node that accepts and does not answer holds no read up; without any node it is an error."""
    stream = prefix + Topics.CONTEXT_BUILD_REQUEST
    options = BusOptions(prefix=prefix, socket_timeout_seconds=1)
    async with open_redis_bus(cluster.url, options) as bus:
        assert await bus.requests.receive(1, wait=0.1) == []
        with ExitStack() as frozen:
            for node in cluster.nodes if everywhere else [holder(cluster, stream)]:
                frozen.enter_context(node.frozen())
            async with asyncio.timeout(10):
                assert await bus.requests.receive(1, wait=0.1) == []
                if everywhere:
                    with pytest.raises(BusError):
                        await bus.requests.receive(1, wait=0.1)
        await asyncio.to_thread(cluster.settle)
        await until(partial(submitted, bus))
        assert payloads(await until(lambda: bus.requests.receive(1, wait=1))) == [b"1"]


async def submitted(bus: Bus) -> bool:
    """Submit, where that is possible."""
    try:
        await bus.submit(b"1")
    except BusError:
        return False
    return True


async def test_dead_cluster_is_a_bus_error() -> None:
    """A cluster of which no node answers is no bus."""
    with pytest.raises(BusError):
        async with open_redis_bus("redis+cluster://127.0.0.1:1"):
            pass


async def test_server_that_is_no_cluster_is_a_mistake(redis_url: str) -> None:
    """Of the settings, as is a database or a socket in the URL of a cluster."""
    plain = redis_url.replace("redis://", "redis+cluster://")
    for url in (plain, plain.replace("/0", "/1"), "unix+cluster:///redis.sock"):
        with pytest.raises(ConfigError, match=r"^bus\.url"):
            async with open_redis_bus(url):
                pass


# --- slots that move -------------------------------------------------------------------------


async def test_slots_may_move_while_they_are_used(cluster: RealCluster, own: RedisPlace) -> None:
    """A shard goes to another node: what it holds, and what comes meanwhile, is read there."""
    owner = of_each_shard(SHARDS)[3]
    stream = own.prefix + shard_topic(3, SHARDS)
    bus = await own.open("one")
    for number in range(3):
        await bus.submit(request_of(owner, f"before-{number}"))
    before = await bus.requests.receive(1, wait=1)
    source = holder(cluster, stream)
    target = next(node for node in cluster.nodes if node is not source)

    with source.client() as old, target.client() as new:
        begin_move(old, new, key_slot(stream.encode()))
        # what is there is served as before; the rest is requested from the new node
        await bus.submit(request_of(owner, "meanwhile"))
        assert await bus.find_results([Identity(owner, "msg_1")]) == [None]
        with pytest.raises(OverloadedError):  # keys of one step on both sides
            await bus.enqueue([request_of(owner, "heard")])
        waiting = asyncio.create_task(bus.results.receive(10, wait=10))
        end_move(cluster, old, new, key_slot(stream.encode()))
    await bus.submit(request_of(owner, "after"))
    found = [*before]
    while len(found) < 5:
        found += await bus.requests.receive(10, wait=1)
    await bus.append(Topics.LLM_RESULTS, b"row")

    names = ("before-0", "before-1", "before-2", "meanwhile", "after")
    assert payloads(found) == [request_of(owner, name) for name in names]
    identities = [Identity(owner, name) for name in names]
    receipts = await bus.finish(
        [answer(each, identity=name) for each, name in zip(found, identities, strict=True)]
    )
    assert [receipt.outcome for receipt in receipts] == [AnswerOutcome.SENT] * 5
    assert None not in await bus.find_results(identities)
    assert payloads(await waiting) == [b"row"]


def begin_move(old: Client, new: Client, slot: int) -> None:
    """Announce that a slot goes to another node."""
    names = [say(client, "CLUSTER MYID").decode() for client in (old, new)]
    say(new, "CLUSTER SETSLOT", slot, "IMPORTING", names[0])
    say(old, "CLUSTER SETSLOT", slot, "MIGRATING", names[1])


def end_move(cluster: RealCluster, old: Client, new: Client, slot: int) -> None:
    """Move the keys of a slot, and notify all nodes of it."""
    name = say(new, "CLUSTER MYID").decode()
    port = new.connection_pool.connection_kwargs["port"]
    while keys := say(old, "CLUSTER GETKEYSINSLOT", slot, 100):
        say(old, "MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
    for node in (new, old):
        say(node, "CLUSTER SETSLOT", slot, "NODE", name)
    for each in cluster.nodes:
        with each.client() as node:
            say(node, "CLUSTER SETSLOT", slot, "NODE", name)


def say(client: Client, *words: object) -> Any:
    """Send a command as it is, and return its reply."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py's


# --- steps that fall apart -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "stream"])
async def test_worker_that_dies_before_the_ack_doubles_the_reply(
    own: RedisPlace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The same one: the request is not lost, and its answer is not another."""
    dying = await own.open("dying", lease_seconds=SHORT)
    other = await own.open("other", lease_seconds=SHORT)
    replies = f"{own.prefix}replies"
    await dying.submit(request_of(ASKED.owner_key))
    (delivery,) = await received(dying)
    dies_at(dying, monkeypatch, "XACK")

    (receipt,) = await dying.finish([answer(delivery, reply_to=replies, reply_kind=kind)])

    assert receipt.outcome == AnswerOutcome.NOT_MINE
    stored = StoredResult(fingerprint="f1", response={"n": 1})
    assert await other.find_results([ASKED]) == [stored]
    (again,) = await taken_over(other)
    late = answer(again, reply_to=replies, reply_kind=kind, response=b'{"n":2}')
    assert [each.outcome for each in await other.finish([late])] == [AnswerOutcome.ANSWERED]
    repeated = answer(again, reply_to=replies, reply_kind=kind, mode="again")
    assert [each.outcome for each in await other.finish([repeated])] == [AnswerOutcome.SENT]
    assert await own.replies(replies, kind) == [b'{"n":1}'] * 2
    assert await other.requests.claim(10) == []


async def test_worker_that_dies_before_the_reply_leaves_it_to_others(
    own: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is stored and goes out with the next delivery; it may also try again itself."""
    bus = await own.open("one", lease_seconds=60)
    replies = f"{own.prefix}replies"
    await bus.submit(request_of(ASKED.owner_key))
    (delivery,) = await received(bus)
    reply = answer(delivery, reply_to=replies, reply_kind="list")
    with monkeypatch.context() as dead:
        dies_at(bus, dead, replies)
        assert [each.outcome for each in await bus.finish([reply])] == [AnswerOutcome.NOT_MINE]
    assert await own.replies(replies, "list") == []

    assert [each.outcome for each in await bus.finish([reply])] == [AnswerOutcome.SENT]
    assert await own.replies(replies, "list") == [b'{"n":1}']


async def test_worker_that_dies_while_burying_loses_nothing(
    own: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is in the dead letter twice rather than nowhere, and stays until it does."""
    bus = await own.open("one", lease_seconds=SHORT)
    await bus.submit(b"no json")
    (delivery,) = await received(bus)
    dead = own.prefix + Topics.CONTEXT_BUILD_DEAD
    for place in (dead, "XACK"):
        with monkeypatch.context() as broken:
            dies_at(bus, broken, place)
            await bus.requests.dead_letter(delivery, "unreadable")
    assert len(await own.stream(dead)) == 1
    (again,) = await taken_over(bus)

    await bus.requests.dead_letter(again, "unreadable")

    assert [entry["attempts"] for entry in await own.stream(dead)] == [b"1", b"2"]
    assert await bus.requests.claim(10) == []


def dies_at(bus: Any, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let a bus fail at calls of this command, or on this key, as if their node were away."""
    execute = bus._servers.execute

    async def failing(calls: Sequence[Command]) -> list[Any]:
        replies = []
        for call in calls:
            if place in (call.key, call.words[0]):
                replies.append(RedisConnectionError("gone"))
            else:
                replies += await execute([call])
        return replies

    monkeypatch.setattr(bus._servers, "execute", failing)


# --- replies that may not be written ---------------------------------------------------------


async def test_forbidden_reply_is_reported_and_not_stored(
    cluster: RealCluster, own: RedisPlace
) -> None:
    """The answer is taken back, so that the error which goes out in its place is the one kept."""
    rules = ("on", "nopass", f"~{own.prefix}*", "&*", "+@all")
    for node in cluster.nodes:
        with node.client() as client:
            say(client, "ACL SETUSER", own.prefix, *rules)
    url = own.url.replace("://", f"://{own.prefix}:any@")
    async with open_redis_bus(url, BusOptions(prefix=own.prefix, lease_seconds=SHORT)) as bus:
        await bus.submit(request_of(ASKED.owner_key))
        (delivery,) = await received(bus)
        reply = answer(delivery, reply_to=f"elsewhere.{own.prefix}", reply_kind="list")

        (receipt,) = await bus.finish([reply])

        assert receipt.outcome == AnswerOutcome.FORBIDDEN
        assert await bus.find_results([ASKED]) == [None]
        diverted = replace(reply, reply_to=f"{own.prefix}common", reply_kind="channel")
        assert [each.outcome for each in await bus.finish([diverted])] == [AnswerOutcome.SENT]
