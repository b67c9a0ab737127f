import pytest

from service.compaction import compactor
from service.compaction.compactor import MAX_SKIPPED, Backoff
from service.ports.stores import Scope

OURS, OTHERS = Scope("o"), Scope("o", "c")


def attempts(backoff: Backoff, builds: int) -> list[int]:
    """Return the builds that are attempted, where each attempt fails."""
    attempted = []
    for build in range(builds):
        if not backoff.skip(OURS):
            backoff.fail(OURS)
            attempted.append(build)
    return attempted


def test_a_history_is_tried_ever_less_often() -> None:
    """0, 1, 3, 7 builds pass, and never more than the most."""
    backoff = Backoff()

    assert attempts(backoff, 20) == [0, 1, 3, 7, 15]
    attempted = attempts(backoff, 1_000)
    assert attempted[-1] - attempted[-2] == MAX_SKIPPED + 1


def test_other_histories_are_tried() -> None:
    """A failure says nothing of them."""
    backoff = Backoff()
    attempts(backoff, 9)

    assert backoff.skip(OURS)
    assert not backoff.skip(OTHERS)


def test_a_success_is_a_new_start() -> None:
    """The next failure is the first again."""
    backoff = Backoff()
    attempts(backoff, 9)
    backoff.reset(OURS)

    assert attempts(backoff, 4) == [0, 1, 3]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten."""
    monkeypatch.setattr(compactor, "MAX_REMEMBERED", 1)
    backoff = Backoff()
    attempts(backoff, 3)
    backoff.fail(OTHERS)

    assert not backoff.skip(OURS)
