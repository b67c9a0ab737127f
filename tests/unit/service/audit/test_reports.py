"""The filing keeps what it is given, and harms nobody where it can't."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from formatters.model import Message, Role
from service.adapters.memory.hub import MemoryReports
from service.audit.store import BATCH, Filing
from service.build.after_answer import WAITING
from service.build.history import MANY_ROWS, History
from service.build.report import Built
from service.config.settings import ManifestSettings, Settings
from service.errors import BusError
from tests.support import MakeBuilder, MakeRequest


class BrokenReports(MemoryReports):
    """A store that is away, until it is back."""

    away = True

    async def put(self, manifests: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Fail while it is away."""
        if self.away:
            raise BusError("away")
        await super().put(manifests, ttl_seconds)

    async def get(self, build_id: str) -> bytes | None:
        """Fail while it is away."""
        if self.away:
            raise BusError("away")
        return await super().get(build_id)


@pytest.fixture
async def built(make_builder: MakeBuilder, make_request: MakeRequest) -> Built:
    """Return a build to be filed."""
    return await make_builder().built(make_request())


def keeping(**settings: float) -> Settings:
    """Return settings for manifests."""
    return Settings(manifests=ManifestSettings.model_validate(settings))


@asynccontextmanager
async def running(filing: Filing) -> AsyncIterator[None]:
    """Run the filing in the background."""
    task = asyncio.create_task(filing.afterwards.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def test_what_is_kept_can_be_found(built: Built) -> None:
    """The manifest of a build is found by the build's id, once the background has filed it."""
    filing = Filing(MemoryReports(), Settings())
    filing.afterwards.keep(None)
    async with running(filing):
        filing.afterwards.keep(built)
        await filing.afterwards.drain()

    found = await filing.find(built.content.build_id)

    assert found is not None
    assert found.build_id == built.content.build_id
    assert await filing.find("bld_other") is None


async def test_builds_that_come_together_are_filed_together(built: Built) -> None:
    """One round trip takes them all, and one that can't be written keeps no other out."""
    trips: list[set[str]] = []

    class Noting(MemoryReports):
        """A store that notes what comes in one go."""

        async def put(self, manifests: Mapping[str, bytes], ttl_seconds: float) -> None:
            """Note it and keep it."""
            trips.append(set(manifests))
            await super().put(manifests, ttl_seconds)

    names = [f"bld_{number}" for number in range(BATCH)]
    builds = [
        replace(built, content=built.content.model_copy(update={"build_id": name}))
        for name in names
    ]
    endless = replace(builds[1], gathered=replace(built.gathered, profile={"a": {1: 2, "b": 3}}))
    filing = Filing(Noting(), Settings())
    for each in (builds[0], endless, *builds[2:], built):
        filing.afterwards.keep(each)
    with capture_logs() as lines:
        async with running(filing):
            await filing.afterwards.drain()

    assert [line["event"] for line in lines] == ["manifest.lost"]
    assert trips == [set(names) - {"bld_1"}, {built.content.build_id}]


async def test_a_time_of_zero_keeps_nothing(built: Built) -> None:
    """Manifests can be switched off."""
    filing = Filing(MemoryReports(), keeping(ttl_seconds=0))
    filing.afterwards.keep(built)
    await filing.file(built)
    await filing.afterwards.drain()
    assert await filing.find(built.content.build_id) is None


async def test_a_store_that_is_away_costs_a_line_in_the_log(built: Built) -> None:
    """Filing fails quietly; looking for a manifest says that the store is away."""
    filing = Filing(BrokenReports(), Settings())
    with capture_logs() as lines:
        await filing.file(built)
    assert [line["event"] for line in lines] == ["manifest.lost"]
    with pytest.raises(BusError):
        await filing.find("bld_1")


async def test_an_outage_costs_two_lines(built: Built) -> None:
    """However many builds come meanwhile: one with the reason, one with their number."""
    store = BrokenReports()
    filing = Filing(store, Settings())
    with capture_logs() as lines:
        for _ in range(2):
            await filing._file([built] * BATCH)
        store.away = False
        await filing.file(built)
        await filing.file(built)
        store.away = True
        await filing.file(built)
    said = [(line["event"], line.get("reason"), line.get("lost")) for line in lines]
    assert said == [
        ("manifest.lost", "away", None),
        ("manifest.resumed", None, 2 * BATCH),
        ("manifest.lost", "away", None),
    ]
    assert lines[0]["build_id"] == built.content.build_id


async def test_what_a_full_backlog_lost_is_told_when_none_waits(built: Built) -> None:
    """Not in between, where each batch would make room for a line; and at the end in any case."""
    filing = Filing(MemoryReports(), Settings())
    with capture_logs() as lines:
        for _ in range(WAITING + 2):
            filing.afterwards.keep(built)
        await filing.file(built)
        assert [line["event"] for line in lines] == ["manifest.lost"]
        async with running(filing):
            await filing.afterwards.drain()
    assert [(line["event"], line.get("lost")) for line in lines[1:]] == [("manifest.resumed", 2)]


async def test_a_manifest_that_is_too_large_is_not_kept(built: Built) -> None:
    """The bound is the setting's, on the compressed bytes."""
    filing = Filing(MemoryReports(), keeping(max_bytes=10))
    with capture_logs() as lines:
        await filing.file(built)
    assert "bytes" in lines[0]["reason"]
    assert await filing.find(built.content.build_id) is None


async def test_builds_that_nobody_files_are_let_go(built: Built) -> None:
    """What waits is bounded, and nobody waits for it for long."""
    filing = Filing(MemoryReports(), Settings())
    with capture_logs() as lines:
        for _ in range(WAITING + 1):
            filing.afterwards.keep(built)
    assert [line["event"] for line in lines] == ["manifest.lost"]


async def test_a_drain_is_bounded(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends doesn't hang on its manifests."""
    monkeypatch.setattr("service.build.after_answer.DRAIN", 0.01)
    filing = Filing(MemoryReports(), Settings())
    filing.afterwards.keep(built)
    await filing.afterwards.drain()
    assert await filing.find(built.content.build_id) is None


async def test_a_long_history_is_filed_alike(built: Built) -> None:
    """What is hashed in a thread comes to the same as elsewhere."""
    filing = Filing(MemoryReports(), Settings())
    rows = tuple(
        Message(id=f"m{number}", role=Role.HUMAN, content="hi") for number in range(MANY_ROWS)
    )
    long = replace(built, gathered=replace(built.gathered, history=History(messages=rows)))
    await filing.file(long)

    found = await filing.find(built.content.build_id)

    assert found is not None
    assert len(found.candidates) == MANY_ROWS


async def test_what_is_no_manifest_is_none(built: Built) -> None:
    """Something else under the key is logged, and counts as nothing."""
    store = MemoryReports()
    await store.put({"bld_1": b"scribble"}, 60)
    with capture_logs() as lines:
        assert await Filing(store, Settings()).find("bld_1") is None
    assert lines[0]["event"] == "manifest.unreadable"


async def test_builds_are_told_of_when_their_manifests_are_there(built: Built) -> None:
    """And not before; those whose manifests were not stored are not told of."""
    told: list[Built] = []
    store = MemoryReports()
    await Filing(store, Settings(), told.append).file(built)
    assert told == [built]
    assert await store.get(built.content.build_id) is not None

    await Filing(BrokenReports(), Settings(), told.append).file(built)
    await Filing(store, keeping(max_bytes=1), told.append).file(built)
    await Filing(store, keeping(ttl_seconds=0), told.append).file(built)
    assert told == [built]
