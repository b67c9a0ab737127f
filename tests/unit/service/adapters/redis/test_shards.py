import hashlib
import zlib
from collections.abc import Sequence
from typing import Any, cast

import pytest
from redis.crc import key_slot

from service.adapters.redis import shards as redis_shards
from service.adapters.redis.driver import Command
from service.adapters.redis.servers import Servers
from service.adapters.redis.shards import (
    MAX_SHARDS,
    REPORT,
    RESULT,
    Shard,
    Shards,
    all_topics,
    escape_glob,
    parse_count,
    report_key,
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
    ("value", "count"), [(None, 1), (b"1", 1), (b"0" * 5000 + b"7", 7), (b"64", 64)]
)
def test_their_number_is_a_decimal(value: bytes | None, count: int) -> None:
    """Without the key there is one."""
    assert parse_count(value) == count


@pytest.mark.parametrize(
    "value", [b"", b"0", b"65", b"-1", b"1.5", b"0x2", b"\xb2", b"00065", b"9" * 5000]
)
def test_other_numbers_are_refused(value: bytes) -> None:
    """With what is there, though not all of it."""
    with pytest.raises(ConfigError, match="no number from 1 to 64") as refused:
        parse_count(value)

    assert len(refused.value.detail) < 130


def shards_of(*counts: int) -> Shards:
    """Return what a process knows that has seen these numbers of shards, one after the other."""
    nowhere = cast("Servers", None)  # nothing is looked up here
    shards = Shards(nowhere, "p.", result_ttl_seconds=60)
    for count in counts:
        shards._use(count)
    return shards


def test_all_streams_that_were_known_are_read() -> None:
    """Those in use first, and the plain one always."""
    assert shards_of().topics == ("context.build.request",)
    assert shards_of(3, 2).topics == (
        *(shard_topic(number, 3) for number in range(2)),
        shard_topic(2, 3),
        "context.build.request",
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
    """Servers that hold no streams, and count the requests for lengths."""

    def __init__(self, *, cluster: bool) -> None:
        self.lengths = 0
        self._cluster = cluster

    async def execute(self, calls: Sequence[Command]) -> list[Any]:
        """Answer that there is neither a number of shards nor an entry."""
        names = [call.words[0] for call in calls]
        self.lengths += names.count("XLEN")
        replies = {"XLEN": 0, "GET": None}
        return [replies[str(name)] for name in names]

    async def may_exist(self, _keys: Sequence[str]) -> bool:
        """Know of one server only that it has none."""
        return self._cluster


async def test_an_idle_worker_asks_seldom_for_streams_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a cluster: at once, and now and then; after a change as at the start."""
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

    assert searches == [*range(0, 600, 8)]
    shards._use(3)
    await shards.refresh()
    assert server.lengths == (len(searches) + 1) * MAX_SHARDS - 3


async def test_one_server_is_queried_by_one_command() -> None:
    """None of the streams exists, so no length is read."""
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


def test_result_key_is_the_documented_one() -> None:
    """The key is what the wire contract says, so that any language can compute it."""
    digest = hashlib.sha256("5:0xÄBm1".encode()).hexdigest()

    key = Shard().result(Identity("0xÄB", "m1"))

    assert key == f"context.build.result.{{context.build.request}}.{digest}"


def test_owner_and_id_do_not_run_together() -> None:
    """Two identities whose texts join to the same are two."""
    assert Shard().result(Identity("ab", "c")) != Shard().result(Identity("a", "bc"))


def test_every_name_begins_with_the_prefix() -> None:
    """Two deployments on one server share no key."""
    keys = Shard("prod.")

    assert keys.stream == "prod.context.build.request"
    assert keys.result(Identity("a", "b")).startswith(
        "prod.context.build.result.{prod.context.build.request}."
    )
    assert keys.heard(b"1").startswith("prod.context.build.heard.{prod.context.build.request}.")


def test_copies_of_a_payload_have_one_key() -> None:
    """All workers that hear the same bytes look at the same set."""
    assert Shard("").heard(b"1") == Shard("").heard(b"1")
    assert Shard("").heard(b"1") != Shard("").heard(b"2")


def test_keys_of_a_shard_share_its_slot() -> None:
    """What one step works on lies on one node of a cluster, whatever the prefix."""
    for prefix in ("", "prod.", "{prod}."):
        for topic in ("context.build.request", "context.build.request.{3}"):
            keys = Shard(prefix, topic)
            names = [keys.stream, keys.heard(b"1"), keys.result(Identity("a", "b"))]
            assert len({key_slot(name.encode()) for name in names}) == 1


def test_result_key_of_a_shard_is_the_documented_one() -> None:
    """The number of the shard is between the braces."""
    key = Shard("prod.", "context.build.request.{2}").result(Identity("a", "b"))

    assert key.startswith("prod.context.build.result.{2}.")


def test_globs_are_escaped() -> None:
    """What a glob takes for more than itself is escaped in a prefix."""
    assert escape_glob("prod.context") == "prod.context"
    assert escape_glob("[a]?*\\{x}-") == r"\[a\]\?\*\\{x}-"


def test_keys_begin_with_what_they_hold() -> None:
    """By which an owner's data is found."""
    assert report_key("bld_1", "p.") == f"p.{REPORT}bld_1"
    assert Shard("p.").result(Identity("o", "a")).startswith(f"p.{RESULT}")
