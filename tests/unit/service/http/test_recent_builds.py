"""What is new is kept, for as long as it may."""

import asyncio
from dataclasses import replace

import pytest

from service.build.report import Built
from service.http import recent_builds as module
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
async def built(make_builder: MakeBuilder, make_request: MakeRequest) -> Built:
    """Return a build."""
    return await make_builder().built(make_request())


def named(built: Built, name: str, owner: str = "o") -> Built:
    """Return the build under another id, of another owner."""
    return replace(
        built,
        request=built.request.model_copy(update={"owner_key": owner}),
        content=built.content.model_copy(update={"build_id": name}),
    )


def of(recent: RecentBuilds, owner: str = "o") -> list[str]:
    """Return the ids of an owner's builds."""
    return [held.built.content.build_id for held in recent.of(owner)]


def make(size: int = 10, clock: Hands | None = None) -> RecentBuilds:
    """Make a place for recent builds."""
    return RecentBuilds(size=size, seconds=60, now=lambda: NOW, clock=clock or Hands())


async def test_owners_see_their_own(built: Built) -> None:
    """The newest first."""
    recent = make()
    for name, owner in (("a", "o"), ("b", "other"), ("c", "o")):
        recent.add(named(built, name, owner))

    assert of(recent) == ["c", "a"]
    assert of(recent, "other") == ["b"]
    assert [held.number for held in recent.of("o", before=3)] == [1]


async def test_the_oldest_goes_where_there_is_no_room(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number and by bytes, but the newest stays however large it is."""
    recent = make(size=2)
    for name in "abc":
        recent.add(named(built, name))
    assert of(recent) == ["c", "b"]

    monkeypatch.setattr(module, "MOST_BYTES", 1)
    recent.add(named(built, "d"))
    assert of(recent) == ["d"]


async def test_what_is_old_goes(built: Built) -> None:
    """Looking for it is enough."""
    clock = Hands()
    recent = make(clock=clock)
    recent.add(named(built, "a"))
    clock.now = 30
    recent.add(named(built, "b"))
    clock.now = 60
    assert recent.find("a") is None
    assert recent.find("b") is not None
    clock.now = 90
    recent.tidy()
    assert of(recent) == []


async def test_a_build_that_comes_again_is_the_newest(built: Built) -> None:
    """It stands there once."""
    recent = make()
    for name in ("a", "b", "a"):
        recent.add(named(built, name))
    assert of(recent) == ["a", "b"]


async def test_gaps_are_known(built: Built) -> None:
    """A number counts as seen without a gap as long as all that came behind it is there."""
    recent = make(size=2)
    assert recent.has_all_since(0)
    for name in "abc":
        recent.add(named(built, name))

    assert [recent.has_all_since(number) for number in range(4)] == [False, True, True, True]
    assert [held.number for held in recent.since(1, "o")] == [2, 3]


async def test_who_waits_is_woken(built: Built) -> None:
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
