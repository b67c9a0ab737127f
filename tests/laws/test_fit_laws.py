"""Laws of `ctxb.fit`: whatever the list, the strategy and the budget."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxb import BudgetExceededError, ContextManager, Fit, fit
from formatters.model import Count, Row
from service.budget.decisions import PRESENT
from service.budget.strategy_names import read_strategy
from service.conversation.sending import row_tokens
from tests.laws.test_in_process_laws import (
    as_blocks,
    as_chat,
    as_parts,
    check_sequence,
    conversations,
    events,
    is_subsequence,
    texts,
)
from tests.validity.anthropic import anthropic
from tests.validity.gemini import gemini

STRATEGIES = st.sampled_from(
    [
        None,
        "oldest_first",
        "middle_out",
        "importance",
        "none",
        "stable_window",
        {"name": "sliding_window", "window_size": 0},
        {"name": "sliding_window", "window_size": 3},
        {"name": "smart_window", "max_messages": 4, "preserve_initial": 2},
        {"name": "tool_result_clearing", "keep_recent_n": 0},
        ["tool_result_clearing", "relevance"],
    ]
)
BUDGETS = st.integers(1, 200)
TOOLS = st.sampled_from([[], [{"name": "f", "description": "Find something."}]])


def fitted(rows: list[Row], max_tokens: int, **options: Any) -> Fit:
    """Return what fits; without what is always kept fitting there is nothing to look at."""
    try:
        return fit(rows, max_tokens, **options)
    except BudgetExceededError:
        assume(False)
        raise


@given(rows=conversations(), budget=BUDGETS, strategy=STRATEGIES, tools=TOOLS)
def test_the_budget_is_kept_and_counts_are_exact(
    rows: list[Row], budget: int, strategy: Any, tools: list[Row], count: Count
) -> None:
    """The reported tokens are those that a second count of the messages finds."""
    found = fitted(rows, budget, strategy=strategy, tools=tools)

    assert found.usage.total <= budget
    assert found.usage.messages == sum(row_tokens(row, count) for row in found.messages)
    assert found.usage.given == sum(row_tokens(row, count) for row in rows)


@st.composite
def reasoned(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw a conversation with more than words and calls, in keys or in parts of its messages."""
    return [draw(st.sampled_from(MORE))(row) for row in draw(conversations())]


THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "why " * 20, "signature": "c2lnbmVk"}


def in_parts(row: dict[str, Any]) -> dict[str, Any]:
    """Put a thought before the parts of a message, if it has parts."""
    key = "parts" if "parts" in row else "content"
    return {**row, key: [THOUGHT, *row[key]]} if isinstance(row.get(key), list) else row


MORE: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda row: row,
    lambda row: {**row, "reasoning_content": THOUGHT["thinking"]},
    lambda row: {**row, "reasoning_details": [THOUGHT], "created": 7},
    lambda row: {**row, "odd": {"deep": [THOUGHT["thinking"], ""]}},
    lambda row: {**row, "provider_parts": [THOUGHT, {"type": "text", "text": "what"}]},
    in_parts,
]


def words(value: Any) -> list[str]:
    """Return all texts in a message, but for kinds, ids and the name that a result repeats."""
    if isinstance(value, str):
        return [value]
    items = value if isinstance(value, list) else []
    if isinstance(value, dict):
        free = {"role", "type", "id", "tool_call_id", "tool_use_id", "metadata"}
        free |= {"name"} if "response" in value else set()
        items = [value[key] for key in value.keys() - free]
    return [text for item in items for text in words(item)]


@given(rows=reasoned(), budget=st.integers(1, 600), strategy=STRATEGIES)
def test_no_text_is_free(rows: list[Row], budget: int, strategy: Any, count: Count) -> None:
    """All that is returned is counted, whichever key it is at; what isn't known is an estimate."""
    found = fitted(rows, budget, strategy=strategy)
    least = [4 + sum(map(count, words(row))) for row in found.messages]

    assert sum(least) <= found.usage.messages <= budget
    assert found.usage.exact == ("why" not in str(found.messages))


@given(rows=conversations(), budget=BUDGETS, strategy=STRATEGIES)
def test_order_system_messages_and_the_newest_words_of_the_user_stay(
    rows: list[Row], budget: int, strategy: Any
) -> None:
    """Each call is followed by its results, and nothing that was given is changed."""
    before = copy.deepcopy(rows)
    kept = fitted(rows, budget, strategy=strategy).messages

    check_sequence(events(kept))
    assert is_subsequence(texts(kept, "user", "assistant"), texts(rows, "user", "assistant"))
    assert texts(kept, "system") == texts(rows, "system")
    assert texts(kept, "user")[-1:] == texts(rows, "user")[-1:]
    assert rows == before


@given(rows=conversations(), budget=BUDGETS, strategy=STRATEGIES)
def test_each_message_has_its_decision(rows: list[Row], budget: int, strategy: Any) -> None:
    """What is kept is the object that was given, and nothing of what is dropped is returned."""
    rows = [copy.copy(row) for row in rows]  # some are in the list twice
    found = fitted(rows, budget, strategy=strategy)
    returned = {id(row) for row in found.messages}

    assert [decision.index for decision in found.decisions] == [*range(len(rows))]
    for decision in found.decisions:
        assert decision.detail
        if decision.outcome == "kept":
            assert id(rows[decision.index]) in returned
        elif decision.outcome not in PRESENT:
            assert id(rows[decision.index]) not in returned


@given(rows=conversations(), strategy=st.sampled_from([None, "oldest_first", "importance"]))
def test_what_fits_is_whole(rows: list[Row], strategy: Any) -> None:
    """With room for all of it nothing is dropped, and a list without faults stays as it is."""
    found = fit(rows, 100_000, strategy=strategy)

    assert "dropped" not in {decision.outcome for decision in found.decisions}
    if {decision.outcome for decision in found.decisions} <= {"kept"}:
        assert sorted(map(id, found.messages)) == sorted(map(id, rows))


@given(rows=conversations(), budget=st.integers(1, 20), strategy=STRATEGIES)
def test_the_error_has_the_budget_that_would_do(
    rows: list[Row], budget: int, strategy: Any
) -> None:
    """With the tokens that it names, everything that is always kept fits."""
    try:
        fit(rows, budget, strategy=strategy)
    except BudgetExceededError as error:
        (enough,) = re.findall(r"raise max_tokens to ([\d,]+)", str(error))
        enough = int(enough.replace(",", ""))
        assert fit(rows, enough, strategy=strategy).usage.total <= enough


# --- lists that an API accepts ---------------------------------------------------------------


def says_blocks(role: str, text: str) -> dict[str, Any]:
    """Write a message of Anthropic's."""
    return {"role": role, "content": [{"type": "text", "text": text}]}


def says_parts(role: str, text: str) -> dict[str, Any]:
    """Write a content of Gemini's."""
    return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}


def untidy_blocks(
    ids: Sequence[str], results: Sequence[str], _text: str | None
) -> list[dict[str, Any]]:
    """Write an exchange with a blank text at the call, and a text before the result."""
    asked, answered = as_blocks(ids, results, f"And {ids[0]}?")
    blank = {"type": "text", "text": "\n"}
    return [
        {**asked, "content": [blank, *asked["content"]]},
        {**answered, "content": answered["content"][::-1]},
    ]


def anthropic_problems(messages: list[Any]) -> list[str]:
    """Return what Anthropic's API refuses."""
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    return anthropic({"messages": messages, "tools": tools})


def gemini_problems(contents: list[Any]) -> list[str]:
    """Return what Gemini's API refuses: calls follow the user, or results."""
    calls = [
        f"contents[{at}]: a call after words of the model"
        for at, content in enumerate(contents)
        if at and any("functionCall" in part for part in content["parts"])
        if contents[at - 1]["role"] == "model"
    ]
    return [*gemini({"contents": contents}), *calls]


Says = Callable[[str, str], dict[str, Any]]
Calls = Callable[[Sequence[str], Sequence[str], str | None], list[dict[str, Any]]]


@st.composite
def valid_lists(draw: st.DrawFn, says: Says, calls: Calls) -> list[dict[str, Any]]:
    """Draw a conversation that an API accepts, at whose end the user or a tool says something."""
    rows: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 8))):
        rows.append(says("user", f"Question {turn}: {'why ' * draw(st.integers(0, 20))}"))
        for number in range(draw(st.integers(0, 2))):
            id_ = f"c{turn}_{number}"
            rows += calls([id_], [id_], None)
        if draw(st.booleans()):
            rows.append(says("assistant", f"Answer {turn}. {'since ' * draw(st.integers(0, 20))}"))
    return rows if rows[-1]["role"] == "user" else [*rows, says("user", "And now?")]


@pytest.mark.parametrize(
    ("says", "calls", "problems"),
    [
        (says_blocks, as_blocks, anthropic_problems),
        (says_blocks, untidy_blocks, anthropic_problems),
        (says_parts, as_parts, gemini_problems),
        (lambda role, text: {"role": role, "content": text}, as_chat, lambda _: []),
    ],
    ids=["anthropic", "anthropic_untidy", "gemini", "openai"],
)
@given(data=st.data(), budget=BUDGETS, strategy=STRATEGIES)
def test_an_api_that_accepts_the_list_accepts_what_is_kept(
    says: Says,
    calls: Calls,
    problems: Callable[[list[Any]], list[str]],
    data: st.DataObject,
    budget: int,
    strategy: Any,
) -> None:
    """Both join neighbours of one role; the first message is the user's, as it was.

    What Anthropic's API refuses in blocks is repaired.
    """
    rows: list[Mapping[str, Any]] = [*data.draw(valid_lists(says, calls))]
    kept = fitted(rows, budget, strategy=strategy).messages

    assert kept[0]["role"] == "user"
    assert [each for each in problems(kept) if "the same role" not in each] == []


@pytest.mark.parametrize(
    ("says", "calls", "problems"),
    [(says_blocks, as_blocks, anthropic_problems), (says_parts, as_parts, gemini_problems)],
    ids=["anthropic", "gemini"],
)
@given(data=st.data(), budget=BUDGETS, strategy=STRATEGIES)
def test_the_manager_keeps_what_an_api_accepts(
    says: Says,
    calls: Calls,
    problems: Callable[[list[Any]], list[str]],
    data: st.DataObject,
    budget: int,
    strategy: Any,
) -> None:
    """Wherever calls show which API it is, at any budget."""
    rows = data.draw(valid_lists(says, calls))
    assume(any("tool_use" in str(row) or "functionCall" in str(row) for row in rows))
    context = ContextManager(max_tokens=budget, strategy=strategy and read_strategy(strategy))
    for row in rows:
        context.add_message_dict(row)
    kept = context.get_prompt()

    assert kept[0]["role"] == "user"
    assert [each for each in problems(kept) if "the same role" not in each] == []
