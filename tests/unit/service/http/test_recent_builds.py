"""What is new is kept, for as long as it may."""

import asyncio

import pytest

from service.audit.reports import BuildReport, make_report
from service.errors import BudgetExceededError, InvalidRequestError, OverloadedError, Problem
from service.http.recent_builds import RecentBuilds, summary_of
from service.wire.request import Envelope, RequestMetadata
from tests.support import NOW, MakeBuilder, MakeRequest


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
async def built(make_builder: MakeBuilder, make_request: MakeRequest) -> BuildReport:
    """Return a build."""
    built = await make_builder().build_or_raise(make_request())
    return make_report(built, at=NOW, content="redacted", settings={})


def named(built: BuildReport, name: str, owner: str = "o") -> BuildReport:
    """Return the build under another id, of another owner."""
    request = built.request.model_copy(update={"owner_key": owner})
    return built.model_copy(update={"build_id": name, "request": request})


def of(recent: RecentBuilds, owner: str = "o") -> list[str]:
    """Return the ids of an owner's builds."""
    return [build.summary.build_id for build in reversed(recent.of(owner))]


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


def envelope(*, identified: bool = True) -> Envelope:
    """Return the envelope of a request."""
    return Envelope(
        id="r1",
        owner_key="o" if identified else "",
        run_id=None,
        fingerprint="",
        metadata=RequestMetadata(),
        identified=identified,
    )


def test_refused_requests_are_listed_with_their_numbers() -> None:
    """Of each owner; one whose owner can't be read is in no list."""
    recent = make()
    recent.refuse(envelope(), BudgetExceededError("too much", needed=900, available=600))
    recent.refuse(envelope(identified=False), OverloadedError())

    (listed,) = recent.of("o")
    summary = listed.summary
    assert (summary.request_id, summary.total, summary.available) == ("r1", 900, 600)
    assert summary.refusal is not None
    assert (summary.refusal.code, summary.refusal.detail) == ("budget_exceeded", "too much")
    assert recent.last == 1


def test_a_refusal_quotes_nothing_of_its_request() -> None:
    """Where the details of an error may have texts, only its places are listed."""
    recent = make()
    problem = Problem("/content/history", "'my secret' is no list")
    recent.refuse(envelope(), InvalidRequestError("'my secret' is no list", [problem]))

    (listed,) = recent.of("o")
    assert "secret" not in repr(listed)
    assert listed.summary.refusal is not None
    assert listed.summary.refusal.pointers == ["/content/history"]


async def test_only_full_reports_list_a_question(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A redacted one doesn't have it; and a full one shows it only where texts may be shown."""
    built = await make_builder().build_or_raise(make_request("Where is the key?"))
    questions = []
    for kept in ("redacted", "full"):
        report = make_report(built, at=NOW, content=kept, settings={})
        questions += [summary_of(report, shows).question for shows in ("redacted", "full")]

    assert questions == [None, None, None, "Where is the key?"]


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
    """It is there once."""
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
    assert [build.number for build in recent.of("o", after=1)] == [2, 3]


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
