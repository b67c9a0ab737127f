"""The bus and the store at a glance."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.cli import stats
from service.cli.stats import Overview, print_overview
from service.config.settings import Settings
from service.errors import SchemaError, StoreError
from service.ports.status import BusState, ServerState, StoreState, StreamState, WorkerState

STREAM = StreamState(
    name="context.build.request",
    entries=1_500,
    added=None,
    lag=None,
    pending=2,
    oldest_pending_seconds=1.25,
    grouped=True,
)
SEEN = Overview(
    at=datetime(2026, 11, 20, 17, 30, tzinfo=UTC),
    bus=BusState(
        shards=1,
        requests=[STREAM],
        recalls=replace(STREAM, name="context.recall.request"),
        results=[],
        workers=[WorkerState(name="w\x1b[2J", pending=2, silent_seconds=0.5)],
        listening=3,
        dead_letters=4,
    ),
    servers=[
        ServerState(
            product="valkey",
            version="8.1",
            durable=True,
            eviction="noeviction",
            used_bytes=2_000_000,
            most_bytes=9_000_000,
            primary=True,
        )
    ],
    store=StoreState(rows=12_000, owners=7, summaries=1, bytes=5_000_000, exact=False, connected=4),
    rate=12.345,
)


def test_all_that_is_seen_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Values that the server lacks are a question mark; a worker's name steers no terminal."""
    print_overview(SEEN, as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    for name in ("context.build.request", "context.recall.request"):
        row = next(line for line in shown.splitlines() if name in line)
        assert row.split()[1:] == ["?", "2", "1.2", "s", "?"]
    for line in (
        "requests: 12.3 per second",
        "workers: 3 listening; shards: 1; dead letters: 4",
        "server: valkey 8.1, 2.0 MB of 9.0 MB, AOF",
        "store: about 12,000 rows of 7 owners, 1 summary, 5.0 MB, 4 connections",
    ):
        assert line in shown.splitlines()


def test_one_look_is_one_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """Where they follow one another."""
    print_overview(SEEN, as_json=True, line=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["bus"]["requests"][0]["pending"] == 2
    assert json.loads(line)["at"] == "2026-11-20T17:30:00+00:00"


async def test_a_store_that_is_away_is_reported_while_watching(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the cause, in which nothing steers a terminal; looking once raises it."""

    async def away(_: Settings) -> StoreState:
        raise StoreError("connect to\x1b[2J db: refused")

    monkeypatch.setattr(stats, "store_state", away)
    settings = Settings.model_validate({"store": {"url": "sqlite:///history.db"}})
    found = await stats.read_overview(settings, watching=True)
    print_overview(found, as_json=False)
    assert found.away == {"store": "connect to\x1b[2J db: refused"}
    assert (
        capsys.readouterr().out
        == "store away: connect to\N{REPLACEMENT CHARACTER}[2J db: refused\n"
    )
    with pytest.raises(StoreError):
        await stats.read_overview(settings)


async def test_watching_ends_where_waiting_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a database has other tables than ours."""

    async def foreign(_: Settings) -> StoreState:
        raise SchemaError("it has not our tables")

    monkeypatch.setattr(stats, "store_state", foreign)
    settings = Settings.model_validate({"store": {"url": "sqlite:///history.db"}})
    with pytest.raises(SchemaError):
        await stats.watch_overview(settings, 0.2, as_json=True)


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        (None, (10.0, 5), None),
        ((10.0, 5), (12.0, 25), 10.0),
        ((10.0, 50), (12.0, 5), 0.0),
        ((10.0, 5), None, None),
    ],
)
def test_a_rate_is_what_came_between_two_looks(
    before: tuple[float, int] | None, now: tuple[float, int] | None, rate: float | None
) -> None:
    """Where the server counts; a stream that was flushed counts again."""
    assert stats._rate(before, now) == rate
