import pytest

from formatters.model import Message, Role, ToolCall
from service.budget.groups import Group
from service.budget.strategies.windows import CountSummary, count_sentence


def group(index: int) -> Group:
    """Return a turn in which a tool is called."""
    call = ToolCall(id="c", name="f")
    messages = (
        Message(id=f"u{index}", role=Role.HUMAN, content="hi"),
        Message(id=f"a{index}", role=Role.AI, content="", tool_calls=(call, call)),
        Message(id=f"t{index}", role=Role.TOOL, content="ok"),
    )
    return Group(index=index, tokens=10, tokens_last=9, messages=messages, size=2)


GROUPS = [group(index) for index in range(6)]


def test_older_groups_are_counted() -> None:
    """The newest messages stay; a sentence says how many others there were."""
    fit = CountSummary(max_items=5).fit(GROUPS, 30)

    assert [each.index for each in fit.kept] == [4, 5]
    assert fit.summary
    assert fit.summary(GROUPS[:4]) == (
        "Previous 8 turns: 4 user messages, 4 model responses, 8 tool calls"
    )


def test_what_is_counted_has_its_reason_and_the_budget_is_reported() -> None:
    """As with the other windows."""
    fit = CountSummary(max_items=5).fit(GROUPS, 18)

    assert {index: decision.reason for index, decision in fit.decisions.items()} == dict.fromkeys(
        range(4), "window"
    )
    assert fit.over_budget
    assert not CountSummary(max_items=5).fit(GROUPS, 19).over_budget


def test_the_sentence_of_the_source() -> None:
    """Fifty turns are counted in the words of the source document."""
    call = ToolCall(id="c", name="f")
    users = [Message(id=f"u{n}", role=Role.HUMAN, content="x") for n in range(25)]
    models = [
        Message(id=f"a{n}", role=Role.AI, content="x", tool_calls=(call,) if n < 10 else ())
        for n in range(25)
    ]
    said = Group(index=0, tokens=1, tokens_last=1, messages=(*users, *models))

    reported = "Previous 50 turns: 25 user messages, 25 model responses, 10 tool calls"
    assert count_sentence([said]) == reported


def test_what_fits_is_left_alone() -> None:
    """Within the budget nothing is summarised."""
    fit = CountSummary(max_items=1).fit(GROUPS, 59)

    assert fit.kept == tuple(GROUPS)
    assert fit.summary is None


def test_a_number_below_nothing_is_refused() -> None:
    """Fewer than no messages can't be kept; none can."""
    assert CountSummary(max_items=0).fit(GROUPS, 30).kept == ()
    with pytest.raises(ValueError, match=r"^max_items has to be a whole number of at least"):
        CountSummary(max_items=-1)
