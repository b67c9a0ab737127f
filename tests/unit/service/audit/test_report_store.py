"""The reports keeps what it is given, and harms nobody where it can't."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from formatters.model import Message, Role
from service.adapters.memory.hub import MemoryReports
from service.audit.report_store import BATCH, BuildReports, find_report
from service.audit.reports import BuildReport
from service.build.account import Built
from service.build.after_answer import MAX_BUILDS
from service.build.history_reader import MANY_ROWS, History
from service.config.endpoints import HttpSettings
from service.config.settings import ReportSettings, Settings
from service.errors import BusError
from tests.support import NOW, MakeBuilder, MakeRequest


class BrokenReports(MemoryReports):
    """A store that is away, until it is back."""

    away = True

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Fail while it is away."""
        if self.away:
            raise BusError("away")
        await super().put(reports, ttl_seconds)

    async def get(self, build_id: str) -> bytes | None:
        """Fail while it is away."""
        if self.away:
            raise BusError("away")
        return await super().get(build_id)


@pytest.fixture
async def built(make_builder: MakeBuilder, make_request: MakeRequest) -> Built:
    """Return a build to report."""
    return await make_builder().build_or_raise(make_request())


def keeping(**settings: float) -> Settings:
    """Return settings for reports."""
    return Settings(reports=ReportSettings.model_validate(settings))


@asynccontextmanager
async def running(reports: BuildReports) -> AsyncIterator[None]:
    """Run the reports in the background."""
    task = asyncio.create_task(reports.queue.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def test_what_is_kept_can_be_found(built: Built) -> None:
    """The report of a build is found by the build's id, once it is stored in the background."""
    reports = BuildReports(MemoryReports(), Settings(), lambda: NOW)
    async with running(reports):
        reports.queue.keep(built)
        await reports.queue.drain()

    found = await find_report(reports._store, built.content.build_id)

    assert found is not None
    assert found.build_id == built.content.build_id
    assert await find_report(reports._store, "bld_other") is None


async def test_builds_that_come_together_are_stored_together(built: Built) -> None:
    """One round trip takes them all, and one that can't be written keeps no other out."""
    trips: list[set[str]] = []

    class Noting(MemoryReports):
        """A store that notes what comes in one go."""

        async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
            """Note it and keep it."""
            trips.append(set(reports))
            await super().put(reports, ttl_seconds)

    names = [f"bld_{number}" for number in range(BATCH)]
    builds = [
        replace(built, content=built.content.model_copy(update={"build_id": name}))
        for name in names
    ]
    odd = [{"role": "user", "content": "x", "more": {1: 2, "b": 3}}]
    endless = replace(builds[1], content=builds[1].content.model_copy(update={"messages": odd}))
    reports = BuildReports(Noting(), Settings(), lambda: NOW)
    for each in (builds[0], endless, *builds[2:], built):
        reports.queue.keep(each)
    with capture_logs() as lines:
        async with running(reports):
            await reports.queue.drain()

    assert [line["event"] for line in lines] == ["report.lost"]
    assert trips == [set(names) - {"bld_1"}, {built.content.build_id}]


async def test_a_time_of_zero_keeps_nothing(built: Built) -> None:
    """Reports can be switched off."""
    reports = BuildReports(MemoryReports(), keeping(ttl_seconds=0), lambda: NOW)
    reports.queue.keep(built)
    await reports.queue.drain()
    assert await find_report(reports._store, built.content.build_id) is None


async def test_a_store_that_is_away_costs_a_line_in_the_log(built: Built) -> None:
    """Storing fails quietly; looking for a report says that the store is away."""
    reports = BuildReports(BrokenReports(), Settings(), lambda: NOW)
    with capture_logs() as lines:
        await reports.store([built])
    assert [line["event"] for line in lines] == ["report.lost"]
    with pytest.raises(BusError):
        await find_report(reports._store, "bld_1")


async def test_an_outage_costs_two_lines(built: Built) -> None:
    """However many builds come meanwhile: one with the reason, one with their number."""
    store = BrokenReports()
    reports = BuildReports(store, Settings(), lambda: NOW)
    with capture_logs() as lines:
        for _ in range(2):
            await reports.store([built] * BATCH)
        store.away = False
        await reports.store([built])
        await reports.store([built])
        store.away = True
        await reports.store([built])
    said = [(line["event"], line.get("reason"), line.get("lost")) for line in lines]
    assert said == [
        ("report.lost", "away", None),
        ("report.resumed", None, 2 * BATCH),
        ("report.lost", "away", None),
    ]
    assert lines[0]["build_id"] == built.content.build_id


async def test_what_a_full_backlog_lost_is_reported_when_none_waits(built: Built) -> None:
    """Not in between, where each batch would make room for a line; and at the end in any case."""
    reports = BuildReports(MemoryReports(), Settings(), lambda: NOW)
    with capture_logs() as lines:
        for _ in range(MAX_BUILDS + 2):
            reports.queue.keep(built)
        await reports.store([built])
        assert [line["event"] for line in lines] == ["report.lost"]
        async with running(reports):
            await reports.queue.drain()
    assert [(line["event"], line.get("lost")) for line in lines[1:]] == [("report.resumed", 2)]


@pytest.mark.parametrize("max_bytes", [1_000_000, 3_000])
async def test_texts_are_kept_where_they_may_be_shown_and_fit(
    make_builder: MakeBuilder, make_request: MakeRequest, max_bytes: int
) -> None:
    """A report that is too large with its texts is stored without them."""
    settings = Settings(
        http=HttpSettings(content="full"), reports=ReportSettings(max_bytes=max_bytes)
    )
    built = await make_builder(settings=settings).build_or_raise(make_request())
    reports = BuildReports(MemoryReports(), settings, lambda: NOW)
    await reports.store([built])

    found = await find_report(reports._store, built.content.build_id)

    assert found is not None
    assert found.content == ("full" if max_bytes > 3_000 else "redacted")
    assert all((each.message is None) == (found.content == "redacted") for each in found.messages)
    assert (found.request.body is None) == (found.content == "redacted")


async def test_a_report_that_is_too_large_is_not_kept(built: Built) -> None:
    """The bound is the setting's, on the compressed bytes."""
    reports = BuildReports(MemoryReports(), keeping(max_bytes=10), lambda: NOW)
    with capture_logs() as lines:
        await reports.store([built])
    assert "bytes" in lines[0]["reason"]
    assert await find_report(reports._store, built.content.build_id) is None


async def test_builds_that_nobody_files_are_let_go(built: Built) -> None:
    """What waits is bounded, and nobody waits for it for long."""
    reports = BuildReports(MemoryReports(), Settings(), lambda: NOW)
    with capture_logs() as lines:
        for _ in range(MAX_BUILDS + 1):
            reports.queue.keep(built)
    assert [line["event"] for line in lines] == ["report.lost"]


async def test_a_drain_is_bounded(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends doesn't hang on its reports."""
    monkeypatch.setattr("service.build.after_answer.DRAIN_SECONDS", 0.01)
    reports = BuildReports(MemoryReports(), Settings(), lambda: NOW)
    reports.queue.keep(built)
    await reports.queue.drain()
    assert await find_report(reports._store, built.content.build_id) is None


async def test_a_long_history_is_reported_alike(built: Built) -> None:
    """What is hashed in a thread comes to the same as elsewhere."""
    reports = BuildReports(MemoryReports(), Settings(), lambda: NOW)
    rows = tuple(
        Message(id=f"m{number}", role=Role.HUMAN, content="hi") for number in range(MANY_ROWS)
    )
    long = replace(built, gathered=replace(built.gathered, history=History(messages=rows)))
    await reports.store([long])

    found = await find_report(reports._store, built.content.build_id)

    assert found is not None
    assert found.read.rows == MANY_ROWS


async def test_what_is_no_report_is_none(built: Built) -> None:
    """Something else under the key is logged, and counts as nothing."""
    store = MemoryReports()
    await store.put({"bld_1": b"scribble"}, 60)
    with capture_logs() as lines:
        assert await find_report(store, "bld_1") is None
    assert lines[0]["event"] == "report.unreadable"


async def test_builds_are_reported_when_their_reports_are_there(built: Built) -> None:
    """And not before; those without a stored report are not reported."""
    reported: list[BuildReport] = []
    store = MemoryReports()
    await BuildReports(store, Settings(), lambda: NOW, reported.append).store([built])
    assert [report.build_id for report in reported] == [built.content.build_id]
    assert await store.get(built.content.build_id) is not None

    await BuildReports(BrokenReports(), Settings(), lambda: NOW, reported.append).store([built])
    await BuildReports(store, keeping(max_bytes=1), lambda: NOW, reported.append).store([built])
    assert len(reported) == 1
