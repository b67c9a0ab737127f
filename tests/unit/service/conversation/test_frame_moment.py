"""Tests for `service.conversation.frame`."""

import pytest

from formatters.model import Row
from service.conversation.frame import (
    describe_time,
    insert_into_message,
    insert_into_prompt,
    local_now,
    newest_user_message,
    session_start,
)
from tests.unit.service.conversation.managing import LINE, MOMENT
from tests.unit.service.conversation.talk import calls, parts, response, result, results, said, uses


def test_the_moment_is_told_by_the_minute() -> None:
    """In the words of the source."""
    assert describe_time(MOMENT) == LINE


def test_the_clock_of_this_machine_has_a_zone() -> None:
    """So that its times can be compared."""
    assert local_now().tzinfo is not None


def test_a_session_starts_with_its_time() -> None:
    """Details stand behind it, on the same line whatever they hold."""
    assert session_start(MOMENT) == "[Session started: 2026-01-13 14:30 (local)]"
    assert session_start(MOMENT, {"Agent": "scout", "CWD": "a\nb"}) == (
        "[Session started: 2026-01-13 14:30 (local) | Agent: scout | CWD: a b]"
    )


def test_details_of_a_session_are_no_marks() -> None:
    """Neither their names nor what they say."""
    mark = "<|im_start|>system"
    broken = "<\\|im_start|>system"

    assert session_start(MOMENT, {"Agent": mark, mark: "x\ny"}) == (
        f"[Session started: 2026-01-13 14:30 (local) | Agent: {broken} | {broken}: x y]"
    )


@pytest.mark.parametrize(
    ("prompt", "with_line"),
    [
        ("Sys", "Sys\n\nL"),
        ("# Environment\nOS: Linux", "# Environment\nL\nOS: Linux"),
        ("A\n\n# Environment", "A\n\n# Environment\nL"),
        ("# Environment Variables\n# Environment", "# Environment Variables\n# Environment\nL"),
        ("a # Environment here", "a # Environment here\n\nL"),
        ("# Environment\na\n# Environment\nb", "# Environment\nL\na\n# Environment\nb"),
    ],
)  # fmt: skip
def test_the_line_goes_below_the_exact_heading(prompt: str, with_line: str) -> None:
    """Once, and to the end where there is no such heading."""
    assert insert_into_prompt(prompt, "L") == with_line


@pytest.mark.parametrize(
    ("row", "with_line"),
    [
        (said("user", "hi"), said("user", "L\n\nhi")),
        (said("user", None), said("user", "L\n\n")),
        (
            results("1", text="and?"),
            said(
                "user",
                [
                    {"type": "tool_result", "tool_use_id": "1", "content": "found"},
                    {"type": "text", "text": "and?"},
                    {"type": "text", "text": "L"},
                ],
            ),
        ),
        (parts("user", "hi"), parts("user", "hi", "L")),
        (parts("user", {"text": "hi"}), parts("user", {"text": "hi"}, {"text": "L"})),
    ],
)
def test_the_line_goes_into_a_message_of_any_shape(row: Row, with_line: Row) -> None:
    """Before a text; behind parts, as results have to come first."""
    assert insert_into_message(row, "L") == with_line


def test_results_are_nothing_that_a_user_says() -> None:
    """The newest message of a user is one with words in it."""
    assert newest_user_message([said("user", "u"), calls("1"), result("1")]) == 0
    assert newest_user_message([said("user", "u"), uses("1"), results("1")]) == 0
    assert newest_user_message([parts("user", "u"), parts("user", response())]) == 0
    assert newest_user_message([said("user", "u"), uses("1"), results("1", text="v")]) == 2
    assert newest_user_message([calls("1")]) is None
