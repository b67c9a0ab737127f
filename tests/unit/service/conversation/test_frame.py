"""Tests for `service.conversation.frame`."""

from typing import Any

from service.conversation.context_config import ContextConfig
from service.conversation.frame import Frame
from service.conversation.sending import RowCosts
from tests.support import SEARCH
from tests.unit.service.conversation.managing import LINE, SIMPLE
from tests.unit.service.conversation.talk import calls, result, said


def frame(config: ContextConfig | None = None, **fields: Any) -> Frame:
    """Return a frame that counts four characters for a token."""
    given = {"prompt": "Sys", "tools": (), "time": LINE, **fields}
    return Frame(config=config or ContextConfig(), row_cost=RowCosts(SIMPLE.count), **given)


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
    assert frame(tools=[SEARCH]).usage([])["tools"] > 50


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


def test_the_moment_goes_into_the_prompt_where_that_is_asked_for() -> None:
    """Counted there too; without a prompt there is none."""
    config = ContextConfig(datetime_in="system")
    rows = [said("user", "hi")]

    assert frame(config).messages(rows) == [said("system", f"Sys\n\n{LINE}"), *rows]
    usage = frame(config).usage(rows)
    assert usage["dynamic"] == SIMPLE.count(f"Sys\n\n{LINE}") - 1
    assert frame(config, prompt="").messages(rows) == rows
    assert frame(config, prompt="").usage(rows)["dynamic"] == 0


def test_without_a_user_there_is_no_moment() -> None:
    """It would stand nowhere."""
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
