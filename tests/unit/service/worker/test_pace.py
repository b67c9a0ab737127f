"""What is refused early, of an owner that has too many requests."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.worker.pace import BUILDS, FORGET, REFUSALS, SECONDS, Paces


@dataclass
class Burst:
    """Requests of one owner that came at once, to a worker that builds at an even pace."""

    requests: int
    per_second: float
    seconds: float
    now: float = 0.0
    built: int = 0
    refused: int = 0

    def work(self) -> "Burst":
        """Build or refuse all that don't expire."""
        paces = Paces(lambda: self.now)
        for behind in range(self.requests - 1, -1, -1):
            if self.now >= self.seconds:
                break
            if paces.refuses("o", behind=behind, seconds=self.seconds):
                self.refused += 1
            else:
                self.built += 1
                self.now += 1 / self.per_second
        return self


def refuses_some(paces: Paces, owner_key: str) -> bool:
    """Return whether one of some requests is refused, with many more behind them."""
    asked = (paces.refuses(owner_key, behind=100_000, seconds=15) for _ in range(REFUSALS + 1))
    return any(asked)


@given(st.integers(1, 5_000), st.floats(1, 1_000), st.floats(0.5, 60))
def test_what_could_be_built_in_time_is_not_refused(
    requests: int, per_second: float, seconds: float
) -> None:
    """A burst is refused only where more came than is built before the deadline."""
    burst = Burst(requests, per_second, seconds).work()

    assert not burst.refused or requests > per_second * seconds
    assert burst.refused <= max(0, requests - per_second * seconds)


def test_the_excess_is_refused_early() -> None:
    """As soon as the pace is known, a few between two builds; these go on."""
    burst = Burst(requests=10_000, per_second=100, seconds=3 * SECONDS).work()

    assert burst.refused == pytest.approx(REFUSALS * 200, rel=0.05)
    assert burst.built == pytest.approx(300, rel=0.05)


def test_nothing_is_refused_after_the_excess_is_gone() -> None:
    """Once other workers have taken what waited, every request is built."""
    now = [0.0]
    paces = Paces(lambda: now[0])
    for _ in range(2 * BUILDS):
        paces.refuses("o", behind=5_000, seconds=15)
        now[0] += 0.05
    assert refuses_some(paces, "o")

    assert not any(paces.refuses("o", behind=3, seconds=15) for _ in range(400))


def test_a_pace_is_known_after_a_while() -> None:
    """The first builds say nothing, however many requests wait."""
    paces = Paces(lambda: 0.0)

    assert not any(paces.refuses("o", behind=1_000_000, seconds=1) for _ in range(10 * BUILDS))


def test_owners_have_their_own_pace() -> None:
    """The excess of one is not refused to another."""
    now = [0.0]
    paces = Paces(lambda: now[0])
    for _ in range(2 * BUILDS):
        paces.refuses("many", behind=100_000, seconds=15)
        now[0] += 0.1

    assert refuses_some(paces, "many")
    assert not refuses_some(paces, "few")


def test_an_outage_lowers_no_pace() -> None:
    """What was built before it counts, as it may be built again."""
    now = [0.0]
    paces = Paces(lambda: now[0])
    for step in (0.1, 1.0):
        for _ in range(2 * BUILDS):
            assert not paces.refuses("o", behind=200, seconds=15)
            now[0] += step


def test_a_pace_is_forgotten() -> None:
    """After a pause, a burst is counted from zero."""
    now = [0.0]
    paces = Paces(lambda: now[0])
    for _ in range(2 * BUILDS):
        paces.refuses("o", behind=100_000, seconds=15)
        now[0] += 0.1
    assert refuses_some(paces, "o")
    now[0] += FORGET

    assert not refuses_some(paces, "o")
