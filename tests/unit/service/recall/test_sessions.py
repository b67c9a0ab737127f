from datetime import UTC, datetime, timedelta

import pytest

from formatters.model import Passage, Role
from service.recall.corpus import Sessions, split_sessions
from service.recall.terms import analyze

START = datetime(2025, 1, 1, tzinfo=UTC)


def said(minutes: int | None, text: str = "x" * 28) -> Passage:
    """Return a passage of ten tokens, said n minutes from the start."""
    at = None if minutes is None else START + timedelta(minutes=minutes)
    return Passage(text, Role.HUMAN, at)


def split(*passages: Passage) -> Sessions:
    """Return the sessions of passages."""
    return split_sessions(passages, [analyze(each.text, "english").tokens for each in passages])


def test_a_break_of_more_than_an_hour_ends_a_session() -> None:
    """One without a time belongs to its position; time that goes back ends nothing."""
    reported = split(said(0), said(60), said(121), said(None), said(100), said(500))

    assert list(reported.of) == [0, 0, 1, 1, 1, 2]
    assert list(reported.totals) == [20, 30, 10]
    assert list(split(said(0), said(None), said(500)).of) == [0, 0, 0]


def test_neighbours_count_less_the_further_they_are() -> None:
    """A neighbour's score falls to nothing over the reach, on both sides; its own counts not."""
    reported = split(said(0), said(1), said(2), said(3))

    (near,) = reported.near([0.0, 1.0, 0.0, 0.0], [20.0])
    assert near == pytest.approx([0.5, 0.0, 0.5, 0.0])
    (near,) = reported.near([1.0, 0.0, 0.0, 2.0], [40.0])
    assert near == pytest.approx([0.5, 1.75, 2.0, 0.25])


def test_nothing_reaches_into_another_session() -> None:
    """What was said after a break is no neighbour, however wide one looks."""
    reported = split(said(0), said(200))

    (near,) = reported.near([1.0, 1.0], [2_500.0])
    assert near == pytest.approx([0.0, 0.0])
    assert [list(ends) for ends in reported.within(2_500.0)] == [[0, 1], [1, 2]]


def test_a_character_without_blanks_is_a_token() -> None:
    """Four letters are taken for one, and so is each Chinese character."""
    assert list(split(said(0, "字" * 7), said(1, "x" * 28)).tokens) == [10, 10]
