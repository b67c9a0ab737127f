"""The live feed, without a connection."""

from collections.abc import AsyncIterator

import pytest

from service.audit.reports import BuildReport, make_report
from service.http import live
from service.http.live import events, start_position
from service.http.recent_builds import RecentBuilds
from tests.support import NOW, MakeBuilder, MakeRequest


@pytest.fixture
async def built(make_builder: MakeBuilder, make_request: MakeRequest) -> BuildReport:
    """Return the report of a build."""
    built = await make_builder().build_or_raise(make_request())
    return make_report(built, at=NOW, content="redacted", settings={})


def named(built: BuildReport, name: str) -> BuildReport:
    """Return the build under another id."""
    return built.model_copy(update={"build_id": name})


def make(size: int = 10) -> RecentBuilds:
    """Make a place for recent builds."""
    return RecentBuilds(size=size, seconds=60)


async def following(stream: AsyncIterator[bytes]) -> str:
    """Return the next piece of a stream."""
    return (await anext(stream)).decode()


async def test_listeners_go_on_where_they_were(built: BuildReport) -> None:
    """Each build comes once, in its order, those that waited in one piece; ids lead behind them."""
    recent = make()
    for name in "abc":
        recent.add(named(built, name))
    begin = start_position(recent, f"{recent.era}.1")
    stream = events(recent, "o", begin)

    assert begin == (1, False)
    assert (await following(stream)).startswith("retry: 3000\n")
    second, third, rest = (await following(stream)).split("\n\n")
    assert rest == ""
    assert second.startswith(f'id: {recent.era}.2\nevent: build\ndata: {{"build_id":"b"')
    assert '"build_id":"c"' in third
    assert start_position(recent, third.split("\n")[0].removeprefix("id: ")) == (3, False)


async def test_who_comes_new_hears_what_comes(built: BuildReport) -> None:
    """And nothing of before."""
    recent = make()
    recent.add(named(built, "a"))
    stream = events(recent, "o", start_position(recent, None))
    await following(stream)
    recent.add(named(built, "b"))

    assert '"build_id":"b"' in await following(stream)


@pytest.mark.parametrize("last", ["other.7", "", "nonsense", "{era}.x", "{era}.-1", "{era}.²"])
async def test_ids_of_another_process_report_a_gap(built: BuildReport, last: str) -> None:
    """Then all that is kept follows."""
    recent = make()
    recent.add(named(built, "a"))
    begin = start_position(recent, last.format(era=recent.era))
    stream = events(recent, "o", begin)
    await following(stream)

    assert begin == (0, True)
    assert "event: gap" in await following(stream)
    assert '"build_id":"a"' in await following(stream)


async def test_an_id_of_the_future_waits_for_nothing(built: BuildReport) -> None:
    """It means the newest build."""
    recent = make()
    recent.add(built)
    assert start_position(recent, f"{recent.era}.99") == (1, False)


async def test_a_slow_listener_is_reported(built: BuildReport) -> None:
    """Builds that were pushed out before they could be sent are a gap."""
    recent = make(size=1)
    stream = events(recent, "o", start_position(recent, None))
    await following(stream)
    recent.add(named(built, "a"))
    assert '"build_id":"a"' in await following(stream)
    for name in "bcd":
        recent.add(named(built, name))

    reported = [await following(stream) for _ in range(2)]
    assert "event: gap" in reported[0]
    assert '"build_id":"d"' in reported[1]


async def test_silence_is_broken_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that both sides notice where the connection is gone."""
    monkeypatch.setattr(live, "PING_SECONDS", 0)
    recent = make()
    stream = events(recent, "o", start_position(recent, None))
    await following(stream)
    assert await following(stream) == ": ping\n\n"


async def test_the_feed_ends_with_its_worker() -> None:
    """Nobody holds the process up."""
    recent = make()
    stream = events(recent, "o", start_position(recent, None))
    await following(stream)
    recent.close()
    assert [piece async for piece in stream] == []
