"""Tests for `service.conversation.selection`."""

import pytest

from service.conversation.compaction import select_messages_for_compaction
from service.conversation.sending import SESSION, SUMMARY, with_mark
from tests.unit.service.conversation.managing import SIMPLE
from tests.unit.service.conversation.talk import Said, calls, result, said

#: Four messages of 10 tokens.
FOUR = [said("user", f"{number}".ljust(24, "x")) for number in range(4)]


def split(rows: list[Said], budget: int, ratio: float) -> tuple[str, str]:
    """Return the places of messages that are summarised, and of those that stay."""
    places = {id(row): str(place) for place, row in enumerate(rows)}
    old, recent = select_messages_for_compaction(rows, SIMPLE, budget, ratio)
    return "".join(places[id(row)] for row in old), "".join(places[id(row)] for row in recent)


@pytest.mark.parametrize(
    ("rows", "ratio", "parts"),
    [
        (FOUR, 0.5, ("01", "23")),
        (FOUR, 0, ("012", "3")),
        (FOUR, 1, ("", "0123")),
        ([], 0.5, ("", "")),
        (FOUR[:1], 0.0, ("", "0")),
    ],
)
def test_the_newest_stay_by_their_share(
    rows: list[Said], ratio: float, parts: tuple[str, str]
) -> None:
    """Of a budget of 40 tokens, and at least one."""
    assert split(rows, 40, ratio) == parts


def test_a_call_goes_with_its_results() -> None:
    """On either side."""
    rows = [said("user", "u"), calls("1"), result("1"), said("user", "v"), calls("2"), result("2")]

    assert split(rows, 20, 1) == ("012", "345")
    assert split(rows, 0, 0) == ("012", "345")


def test_the_newest_message_of_the_user_stays() -> None:
    """However long the run behind it."""
    rows = [said("user", "u"), said("user", "v"), calls("1"), result("1"), said("assistant", "a")]

    assert split(rows, 0, 0) == ("023", "14")


def test_what_the_system_wrote_is_never_summarised() -> None:
    """Summaries, the start of the session, and instructions."""
    rows = [
        with_mark(said("user", "start"), SESSION),
        with_mark(said("user", "summary"), SUMMARY),
        said("system", "s"),
        *FOUR,
    ]

    assert split([dict(row) for row in rows], 0, 0) == ("345", "0126")


def test_what_repair_leaves_out_goes_with_its_neighbours() -> None:
    """A result of no call stays behind what is summarised only where it stands there."""
    rows = [result("9"), FOUR[0], FOUR[1], result("8")]

    assert split(rows, 0, 0) == ("01", "23")
