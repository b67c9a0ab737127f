"""Prompt, tools and time around messages, and their tokens."""

import json
from typing import Any

import pytest

from formatters.model import Row
from service.conversation.context_config import ContextConfig
from service.conversation.frame import (
    Frame,
    describe_time,
    insert_into_message,
    insert_into_prompt,
    local_now,
    newest_user_message,
    session_start,
)
from service.conversation.sending import RowCosts
from tests.support import SEARCH
from tests.unit.service.conversation.managing import LINE, MOMENT, SIMPLE
from tests.unit.service.conversation.talk import calls, parts, response, result, results, said, uses


def frame(config: ContextConfig | None = None, **fields: Any) -> Frame:
    """Return a frame that counts four characters for a token."""
    given = {"prompt": "Sys", "tools": (), "time": LINE, **fields}
    return Frame(config=config or ContextConfig(), row_cost=RowCosts(SIMPLE), **given)


def test_usage_adds_up() -> None:
    """To prompt, tools, messages, and what the moment adds to the newest message of the user."""
    usage = frame().usage([said("user", "hi")])
    dynamic = SIMPLE.count(f"{LINE}\n\nhi") - SIMPLE.count("hi")

    assert usage == {
        "system": 1,
        "tools": 0,
        "messages": 5,
        "dynamic": dynamic,
        "total": 6 + dynamic,
        "budget": 8000,
        "available": 6000,
        "remaining": 6000 - 6 - dynamic,
    }


def test_tools_count_as_json() -> None:
    """And none is nothing."""
    assert frame(tools=json.dumps([SEARCH])).usage([])["tools"] > 50


def test_what_is_too_much_leaves_nothing() -> None:
    """Not less than that."""
    assert frame(ContextConfig(max_tokens=2, reserve_tokens=0)).usage([])["remaining"] == 1
    assert frame(ContextConfig(max_tokens=1, reserve_tokens=1)).usage([])["remaining"] == 0


def test_the_moment_goes_into_the_newest_message_of_the_user() -> None:
    """The prompt stays as it was set, and so do all messages before."""
    rows = [said("user", "a"), said("user", "b"), calls("1"), result("1")]
    system, first, second, *_ = frame().messages(rows)

    assert system == said("system", "Sys")
    assert first == rows[0]
    assert second == said("user", f"{LINE}\n\nb")


def test_the_moment_goes_into_the_prompt_where_that_is_requested() -> None:
    """Counted there too; without a prompt there is none."""
    config = ContextConfig(datetime_in="system")
    rows = [said("user", "hi")]

    assert frame(config).messages(rows) == [said("system", f"Sys\n\n{LINE}"), *rows]
    usage = frame(config).usage(rows)
    assert usage["dynamic"] == SIMPLE.count(f"Sys\n\n{LINE}") - 1
    assert frame(config, prompt="").messages(rows) == rows
    assert frame(config, prompt="").usage(rows)["dynamic"] == 0


def test_without_a_user_there_is_no_moment() -> None:
    """There is no place for it."""
    assert frame().messages([said("assistant", "a")]) == [
        said("system", "Sys"),
        said("assistant", "a"),
    ]
    assert frame().usage([])["dynamic"] == 0


def test_what_is_left_for_messages() -> None:
    """All that is available but for what isn't a message."""
    rows = [said("user", "hi")]
    usage = frame().usage(rows)

    assert frame().room(rows) == 6000 - 1 - usage["dynamic"]
    assert frame(time="").room(rows) == 5999


def test_the_moment_is_shown_by_the_minute() -> None:
    """In the words of the source."""
    assert describe_time(MOMENT) == LINE


def test_the_clock_of_this_machine_has_a_zone() -> None:
    """So that its times can be compared."""
    assert local_now().tzinfo is not None


def test_a_session_starts_with_its_time() -> None:
    """Details follow it, always on the same line."""
    assert session_start(MOMENT) == "[Session started: 2026-01-13 14:30 (local)]"
    assert session_start(MOMENT, {"Agent": "scout", "CWD": "a\nb"}) == (
        "[Session started: 2026-01-13 14:30 (local) | Agent: scout | CWD: a b]"
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
    """Before a text; after parts, as results have to come first."""
    assert insert_into_message(row, "L") == with_line


def test_results_are_nothing_that_a_user_says() -> None:
    """The newest message of a user is one with words in it."""
    assert newest_user_message([said("user", "u"), calls("1"), result("1")]) == 0
    assert newest_user_message([said("user", "u"), uses("1"), results("1")]) == 0
    assert newest_user_message([parts("user", "u"), parts("user", response())]) == 0
    assert newest_user_message([said("user", "u"), uses("1"), results("1", text="v")]) == 2
    assert newest_user_message([calls("1")]) is None
