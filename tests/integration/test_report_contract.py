"""What every bus promises about the reports of builds."""

from redis.asyncio import Redis

from service.adapters.bus_options import BusOptions
from service.adapters.memory.hub import MAX_REPORTS, MemoryReports
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.shards import report_key
from tests.integration.bus_places import SHORT, Place, until

HOUR = 3600.0


async def test_a_report_is_there_for_every_worker(place: Place) -> None:
    """What one bus was given another one finds, byte for byte."""
    one, other = await place.open("one"), await place.open("other")

    await one.reports.put({"bld_1": b"\x00\xff"}, HOUR)

    assert await other.reports.get("bld_1") == b"\x00\xff"
    assert await other.reports.get("bld_2") is None


async def test_reports_that_come_together_are_all_there(place: Place) -> None:
    """Many are kept in one go, each to be found by its build; none are no fault."""
    bus = await place.open("one")
    packed = {f"bld_{number}": b"%d" % number for number in range(40)}

    await bus.reports.put(packed, HOUR)
    await bus.reports.put({}, HOUR)

    assert {name: await bus.reports.get(name) for name in packed} == packed


async def test_it_is_known_which_builds_have_one(place: Place) -> None:
    """Of any number of builds, without fetching a report."""
    bus = await place.open("one")
    names = [f"bld_{number}" for number in range(40)]
    await bus.reports.put(dict.fromkeys(names[::2], b"x"), HOUR)

    assert await bus.reports.existing(names) == frozenset(names[::2])
    assert await bus.reports.existing([]) == frozenset()


async def test_the_newer_report_stands(place: Place) -> None:
    """A build that is stored again replaces its former report."""
    bus = await place.open("one")
    for packed in (b"first", b"second"):
        await bus.reports.put({"bld_1": packed}, HOUR)
    assert await bus.reports.get("bld_1") == b"second"


async def test_a_report_goes_when_its_time_is_over(place: Place) -> None:
    """Nothing has to be cleared away, however short the time is."""
    bus = await place.open("one")
    await bus.reports.put({"bld_1": b"short"}, SHORT)
    await bus.reports.put({"bld_2": b"shorter"}, 0.0001)

    async def gone() -> bool:
        return await bus.reports.get("bld_1") is None

    assert await until(gone)
    assert await bus.reports.get("bld_2") is None


async def test_the_key_is_the_documented_one(redis_url: str, prefix: str) -> None:
    """Readers in any language find a report by the build's id, and it expires."""
    options = BusOptions(prefix=prefix)
    async with Redis.from_url(redis_url) as client, open_redis_bus(redis_url, options) as bus:
        await bus.reports.put({"bld_1": b"x"}, HOUR)
        key = f"{prefix}context.build.report.bld_1"
        assert key == report_key("bld_1", prefix)
        assert await client.get(key) == b"x"
        assert 0 < await client.ttl(key) <= HOUR


async def test_memory_is_bounded() -> None:
    """In a process, the oldest reports give way."""
    reports = MemoryReports()
    for number in range(MAX_REPORTS + 1):
        await reports.put({f"bld_{number}": b"x"}, HOUR)
    assert await reports.get("bld_0") is None
    assert await reports.get("bld_1") == b"x"
