from typing import Any

import pytest

from bench.chaos.__main__ import MODES, broken, late
from bench.chaos.stage import Size
from bench.chaos.traffic import Tally

SIZE = Size(requests=10, kills=1, workers=2)

#: The result of a run without a fault.
GOOD: dict[str, Any] = {
    "lost": 0,
    "duplicates": 0,
    "pending": 0,
    "kills": 1,
    "workers_lost": 0,
    "answered_by_others": True,
    "went_on": True,
    "changed": False,
    "groups_back": True,
    "groups_back_s": 0.1,
    "exit_codes": [0, 0],
    "left_behind": 0,
    "still_in_group": 0,
}


def response(number: int, text: str = "hi") -> dict[str, Any]:
    """Return an answer."""
    return {"id": f"msg_{number}", "content": {"status": "success", "messages": [text]}}


def test_what_is_answered_once_counts_once() -> None:
    """The same answer, stored and sent twice, is one."""
    tally = Tally()
    tally.add(response(1), [response(1), response(1)])

    assert tally == Tally(answered=1, sent_again=1)


@pytest.mark.parametrize("other", [response(2), response(1, "else")])
def test_another_id_or_content_is_a_duplicate(other: dict[str, Any]) -> None:
    """Whether it was sent or is stored."""
    tally = Tally()
    tally.add(response(1), [other])

    assert tally.duplicates == 1


def test_what_is_not_stored_is_lost() -> None:
    """Also where something was sent: a retry would not be answered with it."""
    tally = Tally()
    tally.add(None, [response(1)])
    tally.add(None, [])

    assert (tally.answered, tally.lost, tally.duplicates) == (0, 2, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_without_a_fault_breaks_nothing(mode: str) -> None:
    """Every mode knows what it promises."""
    assert [*broken(mode, SIZE, GOOD), *late(GOOD)] == []


@pytest.mark.parametrize(
    ("mode", "figures"),
    [
        *((mode, {name: 1}) for mode in MODES for name in ("lost", "duplicates", "pending")),
        ("kills", {"kills": 0}),
        ("redis-kill", {"workers_lost": 1}),
        ("pause", {"changed": True}),
        ("pause", {"went_on": False}),
        ("flushall", {"groups_back": False}),
        ("rolling", {"exit_codes": [0, 143]}),
        ("rolling", {"left_behind": 3}),
    ],
)
def test_a_broken_promise_is_named(mode: str, figures: dict[str, Any]) -> None:
    """One figure that is wrong is one sentence."""
    assert len(list(broken(mode, SIZE, {**GOOD, **figures}))) == 1


def test_groups_that_come_back_late_are_reported() -> None:
    """Within two seconds they have to be there."""
    assert len(list(late({"groups_back_s": 2.5}))) == 1
