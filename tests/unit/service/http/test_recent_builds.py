"""What is new is kept, for as long as it may."""

import asyncio

import pytest

from service.audit.reports import BuildReport, make_report
from service.http.recent_builds import RecentBuilds
from tests.support import NOW, MakeBuilder, MakeRequest


class Hands:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
async def built(make_builder: MakeBuilder, make_request: MakeRequest) -> BuildReport:
    """Return a build."""
    built = await make_builder().built(make_request())
    return make_report(built, at=NOW, content="redacted", settings={})


def named(built: BuildReport, name: str, owner: str = "o") -> BuildReport:
    """Return the build under another id, of another owner."""
    request = built.request.model_copy(update={"owner_key": owner})
    return built.model_copy(update={"build_id": name, "request": request})


def of(recent: RecentBuilds, owner: str = "o") -> list[str]:
    """Return the ids of an owner's builds."""
    return [build.summary.build_id for build in recent.of(owner)]


def make(size: int = 10, clock: Hands | None = None) -> RecentBuilds:
    """Make a place for recent builds."""
    return RecentBuilds(size=size, seconds=60, clock=clock or Hands())


async def test_owners_see_their_own(built: BuildReport) -> None:
    """The newest first."""
    recent = make()
    for name, owner in (("a", "o"), ("b", "other"), ("c", "o")):
        recent.add(named(built, name, owner))

    assert of(recent) == ["c", "a"]
    assert of(recent, "other") == ["b"]
    assert [build.number for build in recent.of("o", before=3)] == [1]


async def test_the_oldest_goes_where_there_is_no_room(built: BuildReport) -> None:
    """The newest stay."""
    recent = make(size=2)
    for name in "abc":
        recent.add(named(built, name))
    assert of(recent) == ["c", "b"]


async def test_what_is_old_goes(built: BuildReport) -> None:
    """Looking for it is enough."""
    clock = Hands()
    recent = make(clock=clock)
    recent.add(named(built, "a"))
    clock.now = 30
    recent.add(named(built, "b"))
    clock.now = 60
    assert of(recent) == ["b"]
    clock.now = 90
    assert of(recent) == []


async def test_a_build_that_comes_again_is_the_newest(built: BuildReport) -> None:
    """It stands there once."""
    recent = make()
    for name in ("a", "b", "a"):
        recent.add(named(built, name))
    assert of(recent) == ["a", "b"]


async def test_gaps_are_known(built: BuildReport) -> None:
    """A number counts as seen without a gap as long as all that came behind it is there."""
    recent = make(size=2)
    assert recent.has_all_since(0)
    for name in "abc":
        recent.add(named(built, name))

    assert [recent.has_all_since(number) for number in range(4)] == [False, True, True, True]
    assert [build.number for build in recent.since(1, "o")] == [2, 3]


async def test_who_waits_is_woken(built: BuildReport) -> None:
    """By a build, and by the end, behind which nobody waits any more."""
    recent = make()
    waiting = asyncio.create_task(recent.wait(60))
    await asyncio.sleep(0)
    recent.add(built)
    await waiting

    waiting = asyncio.create_task(recent.wait(60))
    await asyncio.sleep(0)
    recent.close()
    await waiting
    await recent.wait(60)
    assert of(recent) == []


async def test_waiting_ends_by_itself() -> None:
    """Where nothing comes."""
    await make().wait(0)
