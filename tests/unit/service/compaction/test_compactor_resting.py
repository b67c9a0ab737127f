import pytest

from service.compaction import compactor as resting
from service.compaction.compactor import MOST, Resting
from service.ports.summaries import Scope

OURS, OTHERS = Scope("o"), Scope("o", "c")


def tried(rest: Resting, builds: int) -> list[int]:
    """Return which of so many builds are tried, where each try fails."""
    places = []
    for place in range(builds):
        if not rest.passes(OURS):
            rest.failed(OURS)
            places.append(place)
    return places


def test_a_history_is_tried_ever_less_often() -> None:
    """0, 1, 3, 7 builds pass, and never more than the most."""
    rest = Resting()

    assert tried(rest, 20) == [0, 1, 3, 7, 15]
    places = tried(rest, 1_000)
    assert places[-1] - places[-2] == MOST + 1


def test_other_histories_are_tried() -> None:
    """A failure says nothing of them."""
    rest = Resting()
    tried(rest, 9)

    assert rest.passes(OURS)
    assert not rest.passes(OTHERS)


def test_a_success_is_a_new_start() -> None:
    """The next failure is the first again."""
    rest = Resting()
    tried(rest, 9)
    rest.succeeded(OURS)

    assert tried(rest, 4) == [0, 1, 3]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten."""
    monkeypatch.setattr(resting, "REMEMBERED", 1)
    rest = Resting()
    tried(rest, 3)
    rest.failed(OTHERS)

    assert not rest.passes(OURS)
