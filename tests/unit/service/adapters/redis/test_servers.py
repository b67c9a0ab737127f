from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from service.adapters.redis.clients import Clients
from service.adapters.redis.driver import Command
from service.adapters.redis.servers import Reading, ServerClock, Servers, StreamEntry, read_entries

FIELDS = {b"data": b"1"}
FOUND = [("requests", ("1-0", FIELDS)), ("requests", ("2-0", FIELDS))]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (None, []),
        ([], []),
        ({}, []),
        ([[b"requests", [(b"1-0", FIELDS), (b"2-0", FIELDS)]]], FOUND),
        ({b"requests": [[(b"1-0", FIELDS), (b"2-0", FIELDS)]]}, FOUND),
        ({b"requests": [(b"1-0", FIELDS), (b"2-0", FIELDS)]}, FOUND),
        ({b"requests": [[]]}, []),
        ([[b"requests", [(None, None), (b"1-0", FIELDS)]]], [("requests", ("1-0", FIELDS))]),
    ],
)
def test_entries_of_any_protocol(reply: object, expected: object) -> None:
    """Streams read alike in every shape that redis-py gives them."""
    assert read_entries(reply) == expected


@pytest.mark.parametrize("entry", ["99999999999999999-0", "9999999999999-0", "253402300799999-0"])
def test_entries_report_when_they_were_written(entry: str) -> None:
    """An entry's id is its time and place; one that can't be true counts as written now."""
    clock = ServerClock()

    assert clock.written_at("1765353600123-4") == datetime(
        2025, 12, 10, 8, 0, 0, 123_004, tzinfo=UTC
    )
    assert clock.written_at("1765353600123-99999") < clock.written_at("1765353600124-0")
    before = clock.now()
    assert before <= clock.written_at(entry) <= clock.now()


class Shelves(Servers):
    """Servers with a number of entries in each stream, and count the round trips."""

    def __init__(self, **waiting: int) -> None:
        super().__init__(cast("Clients", None))
        self.trips: list[list[str]] = []
        #: what each wait in turn finds; the later ones find nothing
        self.arriving: list[list[StreamEntry]] = []
        self._waiting = waiting

    async def execute(self, calls: Sequence[Command]) -> list[Any]:
        """Answer reads that don't wait."""
        self.trips.append([call.key for call in calls])
        return [self._read(call.key, int(call.words[5])) for call in calls]

    async def _wait(self, reading: Reading) -> list[StreamEntry]:
        self.trips.append(["wait", *reading.keys])
        return self.arriving.pop(0) if self.arriving else []

    def _read(self, key: str, count: int) -> Any:
        taken = min(count, self._waiting[key])
        self._waiting[key] -= taken
        return [[key.encode(), [(b"%d-0" % number, FIELDS) for number in range(taken)]]]


def _reading(keys: str, slots: int, wait: float = 0.0) -> Reading:
    return Reading(group="g", consumer="c", keys=[*keys], slots=slots, wait=wait, patience=1)


async def test_a_full_stream_gets_the_slots_that_others_leave() -> None:
    """Each has the same share first."""
    servers = Shelves(a=1, b=9, c=0)

    read = await servers.read(_reading("abc", 8))

    assert [stream for stream, _ in read] == ["a"] + ["b"] * 7
    assert servers.trips == [["a", "b", "c"], ["b"]]


async def test_fewer_slots_than_streams_are_never_exceeded() -> None:
    """At most one stream per slot is read at once."""
    servers = Shelves(a=0, b=0, c=5, d=5, e=5)

    read = await servers.read(_reading("abcde", 2))

    assert [stream for stream, _ in read] == ["c", "d"]
    assert servers.trips == [["a", "b"], ["c", "d"]]


async def test_entries_are_kept_if_the_connection_is_lost_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody else could read them before their lease expires."""
    servers = Shelves(a=0, b=1, c=5)
    execute = servers.execute

    async def failing(calls: Sequence[Command]) -> list[Any]:
        if "c" in [call.key for call in calls]:
            raise RedisConnectionError("lost")
        return await execute(calls)

    monkeypatch.setattr(servers, "execute", failing)

    assert [stream for stream, _ in await servers.read(_reading("abc", 2))] == ["b"]
    with pytest.raises(RedisConnectionError):
        await servers.read(_reading("abc", 2))


async def test_streams_are_waited_for_in_turn() -> None:
    """No more of them at once than there are slots."""
    servers = Shelves(a=0, b=0, c=0)
    late = ("c", ("1-0", FIELDS))
    servers.arriving = [[], [late]]

    assert await servers.read(_reading("abc", 2, wait=60)) == [late]

    waits = [trip for trip in servers.trips if trip[0] == "wait"]
    assert waits == [["wait", "a", "b"], ["wait", "c", "a"]]


async def test_nothing_is_found_when_the_time_is_up() -> None:
    """However often the streams were waited for in turn."""
    assert await Shelves(a=0, b=0, c=0).read(_reading("abc", 2, wait=0.001)) == []


async def test_a_single_stream_is_read_by_waiting() -> None:
    """What is there comes with the same command."""
    servers = Shelves(a=1)

    assert await servers.read(_reading("a", 2)) == []
    assert servers.trips == [["wait", "a"]]
