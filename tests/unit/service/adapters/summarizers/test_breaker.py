import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from formatters.model import Message
from service.adapters.summarizers.breaker import CircuitBreaker
from service.errors import NoSummaryError, SummarizerError


class Flaky:
    """A summarizer that works or fails, as a test sets it."""

    name = "flaky"

    def __init__(self) -> None:
        self.works = True
        self.asked = 0
        self.began = asyncio.Queue[None]()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Answer or fail, once it may."""
        self.asked += 1
        self.began.put_nowait(None)
        await self.go_on.wait()
        if not self.works:
            raise SummarizerError("down")
        return "short"


class Clock:
    """Shows the seconds that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


@pytest.fixture
def flaky() -> Flaky:
    """Return what is behind the breaker."""
    return Flaky()


@pytest.fixture
def clock() -> Clock:
    """Return the breaker's clock."""
    return Clock()


@pytest.fixture
def breaker(flaky: Flaky, clock: Clock) -> CircuitBreaker:
    """Return a breaker that opens at the second failure for a minute."""
    return CircuitBreaker(flaky, clock, failures=2, open_seconds=60)


async def failing(breaker: CircuitBreaker, times: int = 1) -> str:
    """Ask in vain, and return why."""
    for _ in range(times):
        with pytest.raises(SummarizerError) as raised:
            await breaker.summarize([], max_tokens=10)
    return str(raised.value)


async def test_what_works_goes_through(breaker: CircuitBreaker, flaky: Flaky) -> None:
    """A failure now and then opens nothing."""
    assert breaker.name == "flaky"
    for works in (True, False, True, False, True):
        flaky.works = works
        if works:
            assert await breaker.summarize([], max_tokens=10) == "short"
        else:
            assert await failing(breaker) == "down"
    assert flaky.asked == 5


async def test_failures_in_a_row_open_it(
    breaker: CircuitBreaker, flaky: Flaky, clock: Clock
) -> None:
    """While it is open nothing is asked; then a try decides, and each change is logged once."""
    flaky.works = False
    with capture_logs() as logs:
        await failing(breaker, 2)
        clock.seconds += 59
        assert await failing(breaker, 3) == "summaries are paused after repeated failures"
        assert flaky.asked == 2

        clock.seconds += 1
        assert await failing(breaker) == "down"
        assert await failing(breaker) == "summaries are paused after repeated failures"
        assert flaky.asked == 3

        clock.seconds += 60
        flaky.works = True
        assert await breaker.summarize([], max_tokens=10) == "short"
        assert await breaker.summarize([], max_tokens=10) == "short"

    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("summarizer.paused", "warning"),
        ("summarizer.resumed", "info"),
    ]
    assert logs[0]["summarizer"] == "flaky"


async def test_calls_that_were_under_way_fail_without_a_word(
    breaker: CircuitBreaker, flaky: Flaky
) -> None:
    """Those that fail after it opened are logged no second time."""
    flaky.works = False
    flaky.go_on.clear()
    with capture_logs() as logs:
        under_way = [asyncio.create_task(breaker.summarize([], max_tokens=10)) for _ in range(4)]
        for _ in range(4):
            await flaky.began.get()
        flaky.go_on.set()
        results = await asyncio.gather(*under_way, return_exceptions=True)

    assert [str(result) for result in results] == ["down"] * 4
    assert len(logs) == 1


async def test_one_call_tries_after_the_pause(
    breaker: CircuitBreaker, flaky: Flaky, clock: Clock
) -> None:
    """The others fail at once while it is under way, so that a weak server isn't flooded."""
    flaky.works = False
    await failing(breaker, 2)
    clock.seconds += 60
    flaky.works = True
    flaky.go_on.clear()
    trial = asyncio.create_task(breaker.summarize([], max_tokens=10))
    while flaky.asked < 3:
        await flaky.began.get()
    assert await failing(breaker, 2) == "summaries are paused after repeated failures"

    flaky.go_on.set()
    assert await trial == "short"
    assert await breaker.summarize([], max_tokens=10) == "short"
    assert flaky.asked == 4


class Refusing(Flaky):
    """A summarizer that has nothing to say of what it is given."""

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Refuse."""
        self.asked += 1
        raise NoSummaryError("withheld by a filter")


async def test_one_history_that_is_refused_pauses_no_other(clock: Clock) -> None:
    """An answer shows that the summarizer is there."""
    refusing = Refusing()
    breaker = CircuitBreaker(refusing, clock, failures=2, open_seconds=60)
    for _ in range(5):
        with pytest.raises(NoSummaryError):
            await breaker.summarize((), max_tokens=9)
    assert refusing.asked == 5


async def test_impatience_counts_as_failure(
    breaker: CircuitBreaker, flaky: Flaky, clock: Clock
) -> None:
    """Who hangs until the caller gives up is left in peace as well."""
    flaky.go_on.clear()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await breaker.summarize((), max_tokens=9)
    with pytest.raises(SummarizerError, match="pause"):
        await breaker.summarize((), max_tokens=9)
    assert flaky.asked == 2
