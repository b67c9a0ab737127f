"""A caller's own messages, one by one."""

from formatters.native import CLEARED
from service.conversation.units import Given, can_be_cleared, repair_items
from tests.unit.service.conversation.talk import Said, calls, result, results, said, uses


def given(*messages: Said) -> list[Given]:
    """Return messages as they came."""
    return [Given.read(row, str(n), frozenset((n,))) for n, row in enumerate(messages)]


def test_a_message_is_named_by_its_place() -> None:
    """And so is all that is read from it."""
    (first, second) = given(said("user", "hi"), results("1", text="so?"))

    assert [message.id for message in (*first.messages, *second.messages)] == ["0", "1/0", "1"]
    assert first.is_dialogue
    assert not given(said("system", "Be brief"))[0].is_dialogue


def test_all_of_a_message_is_the_message_itself() -> None:
    """What is less or other than that is written anew."""
    (both,) = given(results("1", text="so?"))

    assert both.with_messages(both.messages) == both.whole
    assert both.whole.row is both.row
    assert both.whole.is_unchanged
    assert both.with_messages(both.messages[1:]).row == results(text="so?")
    assert not both.with_messages(both.messages[1:]).is_unchanged


def test_results_are_cleared_by_their_ids() -> None:
    """Others aren't, and a text never is."""
    (both,) = given(results("1", "2", text="so?"))

    assert [can_be_cleared(message) for message in both.messages] == [True, True, False]
    assert both.whole.clear_results(["0", "9"]) == both.whole
    cleared = both.whole.clear_results(["0/1"])
    assert [message.content for message in cleared.messages] == ["found", CLEARED, "so?"]
    assert cleared.clear_results(["0/1"]).row == cleared.row


def test_what_is_said_is_mended_message_by_message() -> None:
    """A message that was made up stood nowhere, and is nobody's."""
    history = given(calls("1"), said("user", "hi"), uses("2"), results("2"), result("9"))
    items = list(repair_items(history))

    assert [set(item.indexes) for item in items] == [{0}, set(), {1}, {2}, {3}]
    assert [item.is_unchanged for item in items] == [True, False, True, True, True]
    assert items[1].row["tool_call_id"] == "1"
