import zlib
from collections.abc import Sequence
from typing import Any, cast

import pytest

from service.adapters.redis import shards as redis_shards
from service.adapters.redis.keys import Shard
from service.adapters.redis.scripts import Call, Command
from service.adapters.redis.servers import OneServer, Servers
from service.adapters.redis.shards import (
    MAX_SHARDS,
    Shards,
    all_topics,
    owner_of,
    parse_count,
    shard_of,
    shard_topic,
)
from service.errors import ConfigError
from service.ports.bus import Identity


def test_streams_have_the_documented_names() -> None:
    """One has the plain name, several are numbered in braces, which are their hash tag."""
    assert shard_topic(0, 1) == "context.build.request"
    assert [shard_topic(number, 3) for number in range(3)] == [
        "context.build.request.{0}",
        "context.build.request.{1}",
        "context.build.request.{2}",
    ]
    assert len(set(all_topics())) == 1 + MAX_SHARDS


def test_an_owner_has_the_shard_that_any_language_computes() -> None:
    """The CRC-32 of zlib over UTF-8, unsigned, modulo their number."""
    assert zlib.crc32(b"123456789") == 0xCBF43926, "the check value of the common CRC-32"
    assert shard_of("123456789", 1_000_000) == 0xCBF43926 % 1_000_000
    assert shard_of("Zoë", 64) == zlib.crc32("Zoë".encode()) % 64


@pytest.mark.parametrize(
    ("payload", "owner"),
    [
        (b'{"owner_key": "ana"}', "ana"),
        ('{"owner_key": "Zoë", "content": {"owner_key": "x"}}'.encode(), "Zoë"),
        (b'{"owner_key": "a", "owner_key": "b"}', "b"),
        (rb'{"owner_key": "\ud83d"}', "\N{REPLACEMENT CHARACTER}"),
        (b'{"owner_key": 7}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_owners_are_read_as_the_worker_reads_them(payload: bytes, owner: str | None) -> None:
    """What a stranger sent names an owner or none, and never raises."""
    assert owner_of(payload) == owner


@pytest.mark.parametrize(("value", "count"), [(None, 1), (b"1", 1), (b"07", 7), (b"64", 64)])
def test_their_number_is_a_decimal(value: bytes | None, count: int) -> None:
    """Without the key there is one."""
    assert parse_count(value) == count


@pytest.mark.parametrize("value", [b"", b"0", b"65", b"-1", b"1.5", b"0x2", b"\xb2", b"9" * 5000])
def test_other_numbers_are_refused(value: bytes) -> None:
    """With what stands there, though not all of it."""
    with pytest.raises(ConfigError, match="no number from 1 to 64") as refused:
        parse_count(value)

    assert len(refused.value.detail) < 100


def shards_of(*counts: int) -> Shards:
    """Return what a process knows that has seen these numbers of shards, one after the other."""
    nowhere: OneServer = None  # type: ignore[assignment] # nothing is looked up here
    shards = Shards(nowhere, "p.", result_ttl_seconds=60)
    for count in counts:
        shards._use(count)
    return shards


def test_all_streams_that_were_known_are_read() -> None:
    """Those in use first, and the plain one always."""
    assert shards_of().topics == ("context.build.request",)
    assert shards_of(3, 2).topics == (
        *(shard_topic(number, 3) for number in range(2)),
        "context.build.request",
        shard_topic(2, 3),
    )


def test_an_answer_is_looked_for_in_all_places() -> None:
    """In the shard of now first; with one shard there is one place."""
    identity = Identity("ana", "m1")
    places = {count: shard_topic(shard_of("ana", count), count) for count in (1, 3, 4)}
    keys = {count: Shard("p.", topic).result(identity) for count, topic in places.items()}

    assert list(shards_of(1).result_keys(identity)) == [keys[1]]
    assert next(iter(shards_of(3, 4).result_keys(identity))) == keys[4]
    assert set(shards_of(3, 4).result_keys(identity)) == set(keys.values())


def test_a_request_has_rivals_after_a_change_or_on_a_strange_stream_only() -> None:
    """Else nobody has to look elsewhere before an answer goes out."""
    identity = Identity("ana", "m1")
    here = shard_topic(shard_of("ana", 3), 3)

    assert shards_of(1).other_result_keys(identity, "context.build.request") == ()
    assert shards_of(3).other_result_keys(identity, here) == ()
    assert shards_of(1, 3).other_result_keys(identity, here)
    (usual,) = shards_of(3).other_result_keys(identity, "context.build.request")
    assert usual == Shard("p.", here).result(identity)


class _CountingServer:
    """Servers that hold no streams, and count how many lengths they are asked for."""

    def __init__(self, *, cluster: bool) -> None:
        self.lengths = 0
        self._cluster = cluster

    async def may_exist(self, keys: Sequence[str]) -> bool:
        """Answer as a cluster does, or one server."""
        assert len(keys) >= MAX_SHARDS - 3
        return self._cluster

    async def execute(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Answer that there is neither a number of shards nor an entry."""
        self.lengths += sum(call.words(by_sha=True)[0] == "XLEN" for call in calls)
        return [0 if call.words(by_sha=True)[0] == "XLEN" else None for call in calls]


async def test_an_idle_worker_asks_seldom_for_streams_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a cluster: at once, then ever less often; after a change as at the start."""
    now = 1000.0
    monkeypatch.setattr(redis_shards, "monotonic", lambda: now)
    server = _CountingServer(cluster=True)
    shards = Shards(cast("Servers", server), "", result_ttl_seconds=60)
    searches = []
    for _ in range(600):
        before = server.lengths
        await shards.refresh()
        searches += [now - 1000] if server.lengths > before else []
        now += 1

    assert searches == [0, 2, 6, *range(14, 600, 8)]
    shards._use(3)
    await shards.refresh()
    assert server.lengths == (len(searches) + 1) * MAX_SHARDS - 3


async def test_one_server_is_asked_by_one_command() -> None:
    """None of the streams exists, so none is asked for its length."""
    server = _CountingServer(cluster=False)

    await Shards(cast("Servers", server), "", result_ttl_seconds=60).refresh()

    assert server.lengths == 0


async def test_where_all_streams_are_read_nothing_is_searched() -> None:
    """As with the largest number of shards."""
    server = _CountingServer(cluster=True)
    shards = Shards(cast("Servers", server), "", result_ttl_seconds=60)
    shards._use(MAX_SHARDS)

    await shards.refresh()

    assert (server.lengths, len(shards.topics)) == (0, 1 + MAX_SHARDS)
