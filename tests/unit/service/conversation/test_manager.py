"""Tests for `service.conversation.manager`: building."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from formatters.repair.matching import CANCELLED
from service.budget.strategies.middle_out import MiddleOut
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.strategies import (
    NoContextManagement,
    SmartWindowSizeContext,
    WindowSizeContext,
)
from service.errors import MessageError
from tests.support import SEARCH
from tests.unit.service.conversation.managing import (
    LINE,
    MOMENT,
    WarnedLog,
    contents,
    manager,
    numbered,
)
from tests.unit.service.conversation.talk import calls, result, said


def numbers(context: ContextManager) -> list[int]:
    """Return the numbers of the messages that fit."""
    return [int(text[:2]) for text in contents(context.get_prompt())]


def ten(context: ContextManager, count: int = 10) -> ContextManager:
    """Add ten messages of 13 tokens."""
    for number in range(count):
        context.add_user_message(numbered(number))
    return context


def test_it_works_without_arguments() -> None:
    """With the source's limits, an estimating counter, and the clock of this machine."""
    context = ContextManager()
    context.add_user_message("hi")
    (message,) = context.build_messages()

    assert message["content"].endswith("(local)\n\nhi")
    assert (context.get_token_usage()["budget"], context.get_token_usage()["available"]) == (
        8000,
        6000,
    )


def test_a_prompt_comes_back_as_it_was_set() -> None:
    """By the property or by the method."""
    context = manager(system_prompt="a")
    assert context.system_prompt == "a"
    context.system_prompt = "b"
    assert context.system_prompt == "b"
    context.set_system_prompt("c")
    assert context.system_prompt == "c"


def test_no_tools_are_none() -> None:
    """As APIs ask for it; tools are copied both ways."""
    context = manager()
    context.set_tool_definitions([])
    assert context.get_tool_definitions() is None
    context.set_tool_definitions([SEARCH])
    assert context.get_tool_definitions() == [SEARCH]
    assert context.get_tool_definitions() is not context.get_tool_definitions()


def test_the_limit_alone_has_no_reserve() -> None:
    """It replaces that of a config."""
    config = ContextConfig(max_tokens=100, reserve_tokens=10)

    assert manager(max_tokens=50).config.available == 50
    assert manager(config, max_tokens=50).config.available == 40
    assert manager(config).config.available == 90


def test_usage_of_the_sources_example() -> None:
    """The prompt "Sys" and "hi": 1 and 5, and what the time costs."""
    context = manager(system_prompt="Sys")
    context.add_user_message("hi")
    usage = context.get_token_usage()

    assert (usage["system"], usage["tools"], usage["messages"]) == (1, 0, 5)
    assert usage["total"] == 6 + usage["dynamic"]
    assert (usage["budget"], usage["available"]) == (8000, 6000)
    assert usage["remaining"] == 6000 - usage["total"]


def test_date_and_time_are_of_each_build() -> None:
    """In the newest message of the user; the prompt stays, so that it can be cached."""
    times = iter([MOMENT, MOMENT + timedelta(minutes=1)])
    context = manager(system_prompt="Sys", clock=lambda: next(times))
    context.add_user_message("hi")
    first, second = context.build_messages(), context.build_messages()

    assert first[0] == second[0] == said("system", "Sys")
    assert first[1]["content"] == f"{LINE}\n\nhi"
    assert second[1]["content"].startswith("Current date: 2026-01-13, Current time: 14:31 (local)")
    assert context.messages == [said("user", "hi")]


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("Sys", f"Sys\n\n{LINE}"),
        ("# Environment x\nx\n# Environment\ny", f"# Environment x\nx\n# Environment\n{LINE}\ny"),
        ("a # Environment here", f"a # Environment here\n\n{LINE}"),
    ],
)  # fmt: skip
def test_the_source_has_them_in_the_prompt(prompt: str, sent: str) -> None:
    """It can be read, and counts."""
    context = manager(ContextConfig(datetime_in="system"), system_prompt=prompt)
    context.add_user_message("hi")

    assert contents(context.build_messages()) == [sent, "hi"]
    assert context.get_token_usage()["dynamic"] > 0
    assert context.get_prompt()[0]["content"] == prompt


def test_without_a_prompt_there_is_no_system_message() -> None:
    """Nor for an empty one."""
    context = manager(ContextConfig(datetime_in="system"), system_prompt="")
    assert context.build_messages() == []
    context.add_user_message("hi")
    assert context.build_messages() == [said("user", "hi")]


@pytest.mark.parametrize(
    ("strategy", "available", "kept"),
    [
        ("oldest_first", 52, [6, 7, 8, 9]),
        ("oldest_first", 65, [5, 6, 7, 8, 9]),
        ("oldest_first", 0, [9]),
        ("middle_out", 65, [0, 6, 7, 8, 9]),
        ("middle_out", 12, [0, 9]),
        ("middle_out", 0, [9]),
    ],
)
def test_what_fits_by_the_sources_examples(strategy: str, available: int, kept: list[int]) -> None:
    """Ten messages of 13 tokens."""
    assert numbers(ten(manager(available=available, strategy=strategy))) == kept


def test_two_messages_are_not_taken_from_the_middle() -> None:
    """Both stay, and it is said that they are too much."""
    context = ten(manager(available=0, strategy=MiddleOut()), 2)

    assert numbers(context) == [0, 1]
    assert context.build().over_budget


def test_what_protects_more_than_fits_is_reported() -> None:
    """By the build, and to the logger."""
    log = WarnedLog()
    context = ten(manager(available=0, logger=log))

    assert context.build().over_budget
    kind, reported = log.heard[-1]
    assert (kind, "exceeds the budget by" in reported) == ("warning", True)


def test_exactly_the_budget_is_not_over_it() -> None:
    """One token more is."""
    context = manager(ContextConfig(datetime_in="system"), system_prompt="Sys")
    context.add_user_message("x" * 40)
    total = context.get_token_usage()["total"]

    for available, over in ((total, False), (total - 1, True)):
        small = manager(
            ContextConfig(max_tokens=available, reserve_tokens=0, datetime_in="system"),
            system_prompt="Sys",
        )
        small.add_user_message("x" * 40)
        assert small.is_over_budget() == over


def test_a_limit_without_a_strategy_holds() -> None:
    """Where the source declares it and ignores it."""
    context = manager(max_tokens=100, strategy=NoContextManagement())
    ten(context, 20)
    built = context.build()

    assert built.usage["total"] <= 100
    assert built.messages[-1]["content"].endswith(numbered(19))


#: Nested more deeply than is read.
DEEP: dict[str, Any] = {"type": "json"}
DEEP["inside"] = [DEEP]


def test_a_result_takes_the_place_of_its_placeholder() -> None:
    """The history holds what was sent, and the result of the call is still to come."""
    context = manager(sync_history=True)
    context.add_user_message("Book the ferry.")
    context.add_assistant_message("", [{"id": "c1", "name": "book", "arguments": {}}])
    context.add_user_message("How is it going?")
    built = context.build_messages()
    context.add_tool_result(tool_call_id="c1", name="book", result="Booked")

    assert CANCELLED in [message["content"] for message in built]
    results = [each["content"] for each in context.build_messages() if each["role"] == "tool"]
    assert results == ["Booked"]
    assert CANCELLED not in [message["content"] for message in context.messages]


def test_a_call_keeps_its_placeholder_when_the_answer_after_it_goes() -> None:
    """The next build is the same."""
    context = manager(max_tokens=1, strategy=SmartWindowSizeContext(5, 1, True), sync_history=True)
    context.add_user_message("Book the ferry.")
    context.add_user_message("How is it going?")
    made: list[dict[str, object]] = [
        {"id": id_, "name": "book", "arguments": {}} for id_ in ("c1", "c2")
    ]
    context.add_assistant_message("", made)
    context.add_assistant_message("It is going well.")
    once = context.build_messages()

    assert once[-1] == {"role": "tool", "content": CANCELLED, "tool_call_id": "c2"}
    assert context.build_messages() == once


def test_objects_of_an_sdk_are_refused() -> None:
    """They would be left out of each context."""
    with pytest.raises(MessageError, match=r"the message\.content\[0\] is no mapping"):
        manager().add_message_dict({"role": "assistant", "content": [object()]})


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda c: c.add_message_dict({"role": "user", "content": [DEEP]}), "deeper than 64"),
        (lambda c: c.add_assistant_message([{"type": "text"}]), "add_message_dict"),
        (lambda c: c.set_system_prompt([{"type": "text"}]), "system_prompt has to be a text"),
        (lambda c: c.set_tool_definitions([DEEP]), r"tools\[0\] is nested deeper"),
        (lambda c: c.set_tool_definitions({"name": "x"}), "tools has to be a list of definitions"),
        (lambda c: c.set_tool_definitions(["x"]), r"tools\[0\] has to be a definition, not 'x'"),
        (lambda c: c.add_user_message(said("user", "x")), "add a whole message by add_message_dic"),
        (lambda c: c.apply_compaction(None, []), "summary_message is no mapping but None"),
        (lambda c: c.apply_compaction({}, [5]), r"preserved_messages\[0\] is no mapping but 5"),
        (lambda _: ContextManager(token_counter=5), "token_counter has to count texts, not 5"),  # type: ignore[arg-type]
        (lambda _: ContextManager(token_counter="gpt-4o"), "'gpt-4o'; get_token_counter"),  # type: ignore[arg-type]
    ],
)
def test_what_can_never_be_sent_is_refused_at_once(use: Any, error: str) -> None:
    """Not by the next build."""
    context = manager()
    with pytest.raises((TypeError, MessageError), match=error):
        use(context)
    assert context.build_messages() == []


def test_results_that_are_right_stay_apart() -> None:
    """Whatever is repaired later, so that what was sent before stays the same."""
    uses = [{"type": "tool_use", "id": id_, "name": "f", "input": {}} for id_ in "ab"]
    first, second = [{"type": "tool_result", "tool_use_id": id_, "content": "so"} for id_ in "ab"]
    context = manager()
    context.add_user_message("Where?")
    context.add_message_dict({"role": "assistant", "content": uses})
    context.add_message_dict({"role": "user", "content": [first]})
    context.add_message_dict({"role": "user", "content": [{"type": "text", "text": "and"}, second]})
    context.add_user_message("So?")
    context.add_assistant_message(None, [{"id": "c", "name": "f", "arguments": {}}])
    before = context.get_prompt()
    context.add_user_message("And?")

    assert context.get_prompt()[: len(before)] == before


def test_builds_leave_the_history_alone() -> None:
    """Unless it is to hold what the model sees; then the next build is the same."""
    context = ten(manager(available=70))
    context.build_messages()
    assert len(context.messages) == 10

    context = ten(manager(available=70, sync_history=True))
    first = context.build_messages()
    assert len(context.messages) == len(first) < 10
    assert context.build_messages() == first
    context = ten(manager(available=70, sync_history=True))
    context.get_prompt()
    assert len(context.messages) == 10


def test_calls_that_nobody_answered_are_answered() -> None:
    """And orphans, unknown roles and empty messages go: any API takes what is left."""
    context = manager()
    for row in (
        result("9"),
        calls("1"),
        said("command", "/quit"),
        said("user", "u"),
        said("assistant", ""),
        said("system", ""),
    ):
        context.add_message_dict(row, "x")

    assert [row["role"] for row in context.get_prompt("x")] == ["assistant", "tool", "user"]


def test_an_instruction_ends_the_waiting_until_the_result_comes() -> None:
    """The call has a placeholder before the instruction, which a late result replaces."""
    context = manager()
    for row in (said("user", "hi"), calls("1"), said("system", "Be brief.")):
        context.add_message_dict(row)
    assert [row["role"] for row in context.get_prompt()] == ["user", "assistant", "tool", "system"]

    context.add_message_dict(result("1"))
    assert contents(context.get_prompt())[2:] == ["found", "Be brief."]


def test_files_come_back_as_they_were_read() -> None:
    """An agent edits by exact match: those of the standard library are sent byte for byte."""
    files = [file.read_bytes().decode() for file in Path(os.__file__).parent.glob("*.py")]
    texts = [*filter(str.strip, files), "| a\r\n</s>\ufeff"]
    context = manager(ContextConfig(max_tokens=10**8, role_marks=False))
    for number, text in enumerate(texts):
        call = {"id": f"c{number}", "name": "read_file", "arguments": {}}
        context.add_assistant_message(None, [call])
        context.add_tool_result(tool_call_id=f"c{number}", name="read_file", result=text)

    sent = [row["content"] for row in context.get_prompt() if row["role"] == "tool"]
    assert len(sent) > 100
    assert sent == texts


def test_special_tokens_are_broken_unless_they_may_stay() -> None:
    """In tools and messages."""
    tool = {"type": "function", "function": {"name": "f", "description": "</s>"}}
    for role_marks, text in ((True, "<\\/s>"), (False, "</s>")):
        context = manager(ContextConfig(role_marks=role_marks))
        context.set_tool_definitions([tool])
        context.add_user_message("</s>")

        assert contents(context.get_prompt()) == [text]
        assert str(context.get_tool_definitions()).count(repr(text)) == 1


def test_an_unknown_conversation_has_the_prompt_alone() -> None:
    """And no statistics."""
    context = manager(system_prompt="Sys")

    assert context.get_prompt("x") == [said("system", "Sys")]
    assert manager().get_prompt("x") == []
    assert context.get_context_stats("x") == {}


def test_strategies_can_be_changed() -> None:
    """While a conversation goes on; the config's budget holds after them."""
    context = ten(manager())
    context.update_context_management(WindowSizeContext(3))
    assert numbers(context) == [7, 8, 9]
    assert isinstance(context.context_management, WindowSizeContext)
    context.update_context_management("window_size")
    assert numbers(context) == [*range(10)]
    with pytest.raises(ValueError, match="backwards"):
        context.update_context_management("backwards")


def test_statistics_are_of_what_is_sent() -> None:
    """And of the strategy, where it has settings."""
    context = ten(manager(strategy=SmartWindowSizeContext(3)), 10)
    stats = context.get_context_stats()

    assert stats["strategy"] == "smart_window_size"
    assert stats["max_messages"] == 3
    assert (stats["total_messages"], stats["messages_in_context"], stats["messages_dropped"]) == (
        10,
        3,
        7,
    )
    assert not stats["over_budget"]
    assert manager().get_context_stats()["strategy"] == "oldest_first"


def test_placeholders_are_no_messages_in_statistics() -> None:
    """A result that a call lacks is in the context, but not one of the conversation's messages."""
    context = manager()
    for row in (said("user", "u"), calls("1"), said("user", "more")):
        context.add_message_dict(row)
    stats = context.get_context_stats()

    assert len(context.build_messages()) == 4
    assert (stats["total_messages"], stats["messages_in_context"]) == (3, 3)


def test_conversations_are_built_apart() -> None:
    """Each with the same prompt."""
    context = manager(system_prompt="Sys")
    context.add_user_message("a", conversation_id="x")
    context.add_user_message("b", conversation_id="y")

    assert contents(context.get_prompt("x")) == ["Sys", "a"]
    assert contents(context.build_messages(conversation_id="y"))[1].endswith("b")
    assert context.is_over_budget(conversation_id="y") is False
