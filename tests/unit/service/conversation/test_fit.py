"""What fits of a list is valid for its API, and each message has its outcome."""

from collections.abc import Sequence
from typing import Any

import pytest

from formatters.model import Row
from formatters.native import CLEARED
from service.budget.groups import Fit, Group, Strategy
from service.budget.strategies.none import KeepAll
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.windows import SmartWindow
from service.conversation.fit import FittedRows, fit_rows
from service.errors import BudgetExceededError, ConfigError

#: Each message is 4 tokens by convention, and 1 for each word.
ASKED = {"role": "user", "content": "When does it leave?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "at eight from the northern pier"}


def words(text: str) -> int:
    """Count words as tokens."""
    return len(text.split())


def fitted(rows: list[Row], budget: int, strategy: Strategy | None = None) -> FittedRows:
    """Return what fits, by default of the newest messages."""
    return fit_rows(rows, strategy or OldestFirst(), budget, words)


def outcomes(found: FittedRows) -> list[tuple[str, str]]:
    """Return outcome and reason of each message."""
    return [(decision.outcome, decision.reason) for decision in found.decisions]


def test_what_repair_does_has_its_reason() -> None:
    """To the result of no call, the call without a result, and an empty message."""
    nobodys = {**RESULT, "tool_call_id": "c9"}
    rows: list[Row] = [ASKED, nobodys, ASKED, CALL, {"role": "assistant", "content": ""}, ASKED]
    found = fitted(rows, 100)

    assert outcomes(found) == [
        ("kept", "fits"),
        ("filtered", "orphan_result"),
        ("kept", "fits"),
        ("repaired", "result_missing"),
        ("filtered", "empty"),
        ("kept", "fits"),
    ]
    assert [row["role"] for row in found.rows] == ["user", "user", "assistant", "tool", "user"]


def test_what_is_left_out_of_a_message_is_its_reason() -> None:
    """More than what else changes in it."""
    results = [
        {"type": "tool_result", "tool_use_id": id_, "content": text}
        for id_, text in (("a", ""), ("nobodys", "eight"))
    ]
    rows: list[Row] = [
        ASKED,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]},
        {"role": "user", "content": results},
    ]

    assert outcomes(fitted(rows, 100))[2] == ("repaired", "orphan_result")


def test_a_result_that_came_late_is_moved() -> None:
    """To its call, as the same object."""
    late = {"role": "user", "content": "Wait."}
    found = fitted([ASKED, CALL, late, RESULT], 100)

    assert found.rows == [ASKED, CALL, RESULT, late]
    assert outcomes(found)[3] == ("repaired", "result_moved")


def test_results_that_are_still_to_come_are_no_fault() -> None:
    """Calls at the very end are kept as they are."""
    found = fitted([ASKED, CALL], 100)

    assert found.rows == [ASKED, CALL]
    assert outcomes(found) == [("kept", "fits")] * 2


def test_results_are_no_longer_to_come_once_an_instruction_follows() -> None:
    """As after a message of the user; the placeholder follows the call."""
    rule = {"role": "system", "content": "Be brief."}
    found = fitted([ASKED, CALL, rule], 100)

    assert [row["role"] for row in found.rows] == ["user", "assistant", "tool", "system"]
    assert outcomes(found) == [("kept", "fits"), ("repaired", "result_missing"), ("kept", "fits")]


def test_an_empty_system_message_is_filtered() -> None:
    """As one of the user is."""
    found = fitted([{"role": "system", "content": " "}, {"role": "user", "content": ""}, ASKED], 9)

    assert found.rows == [ASKED]
    assert outcomes(found) == [("filtered", "empty"), ("filtered", "empty"), ("kept", "fits")]


def test_a_placeholder_goes_into_the_message_of_results() -> None:
    """In messages of blocks, which then is another one."""
    uses: list[Row] = [
        {"type": "tool_use", "id": id_, "name": "f", "input": {}} for id_ in ("c1", "c2")
    ]
    results = [{"type": "tool_result", "tool_use_id": "c1", "content": "eight"}]
    rows: list[Row] = [
        ASKED,
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
        ASKED,
    ]
    found = fitted(rows, 100)

    assert outcomes(found)[2] == ("repaired", "result_missing")
    assert found.rows[2] is not rows[2]
    assert rows[2]["content"] == results


def test_a_cleared_result_has_its_outcome() -> None:
    """If that saves anything; a result that is shorter than the note stays."""
    short = {**RESULT, "tool_call_id": "c2", "content": "eight"}
    calls = [{**CALL["tool_calls"][0], "id": id_} for id_ in ("c1", "c2")]  # type: ignore[index, dict-item]
    rows: list[Row] = [ASKED, {**CALL, "tool_calls": calls}, RESULT, short, ASKED]
    clearing = ToolResultClearing(keep_recent_n=0)
    needed = fitted(rows, 100).tokens - 3
    found = fitted(rows, needed, clearing)

    assert outcomes(found)[2:4] == [("cleared", "result_cleared"), ("kept", "fits")]
    assert found.tokens == needed
    assert found.rows[2]["content"] == "[tool result cleared]"


def test_results_give_way_to_the_text_beside_them() -> None:
    """The oldest first, and none of the newest unit; the error counts them as cleared."""
    long = {"type": "tool_result", "content": "word " * 50}
    uses: list[Row] = [
        {"type": "tool_use", "id": id_, "name": "f", "input": {}} for id_ in ("a", "b", "c")
    ]
    call, results = [uses[0], uses[1]], [{**long, "tool_use_id": id_} for id_ in ("b", "a", "c")]
    rows: list[Row] = [
        {"role": "assistant", "content": call},
        {"role": "user", "content": [*results[:2], {"type": "text", "text": "When?"}]},
        {"role": "assistant", "content": [uses[2]]},
        {"role": "user", "content": [results[2]]},
    ]
    least = fitted(rows, 1_000).tokens - 2 * 47

    assert [
        [part.get("content") for part in fitted(rows, budget).rows[1]["content"]]  # type: ignore[attr-defined]
        for budget in (least + 93, least + 46)
    ] == [[CLEARED, long["content"], None], [CLEARED, CLEARED, None]]
    with pytest.raises(BudgetExceededError, match=f"needs {least} tokens") as raised:
        fitted(rows, least - 1)
    assert (raised.value.needed, raised.value.available) == (least, least - 1)


def test_what_a_strategy_keeps_beyond_the_budget_goes() -> None:
    """The oldest first, but neither system messages nor the newest ones."""
    system = {"role": "system", "content": "Be brief."}
    rows: list[Row] = [ASKED, system, RESULT | {"role": "assistant"}, ASKED, ASKED]
    found = fitted(rows, 22, KeepAll())

    assert found.rows == [system, ASKED, ASKED]
    assert outcomes(found)[0] == outcomes(found)[2] == ("dropped", "insufficient")


def test_a_strategy_that_returns_no_fit_is_named() -> None:
    """As builds do."""

    class Lists(KeepAll):
        def fit(self, groups: Sequence[Group], budget: int) -> Fit:
            return list(groups)  # type: ignore[return-value] # as untyped code may

    with pytest.raises(ConfigError, match=r"the strategy none has to return .+, not list"):
        fitted([ASKED], 100, Lists())


def test_what_a_strategy_left_out_without_a_reason_is_not_called_too_large() -> None:
    """The strategy is another package's, and gave none."""

    class Mute(KeepAll):
        def fit(self, groups: Sequence[Group], budget: int) -> Fit:
            return Fit(kept=tuple(groups[2:]))

    answer = {"role": "assistant", "content": "At eight."}
    found = fitted([ASKED, answer, ASKED, answer, ASKED], 100, Mute())

    assert outcomes(found)[:2] == [("dropped", "not_chosen")] * 2


def says(role: str, *parts: str | dict[str, Any]) -> dict[str, Any]:
    """Return a content of Gemini's."""
    return {"role": role, "parts": [{"text": p} if isinstance(p, str) else p for p in parts]}


def test_a_result_of_gemini_that_moves_joins_the_others() -> None:
    """Its API wants all results of a message in the next one."""
    call = {"functionCall": {"id": "a", "name": "f", "args": {}}}
    result = {"functionResponse": {"id": "a", "name": "f", "response": {"at": "eight"}}}
    other_call = {"functionCall": {**call["functionCall"], "id": "b"}}
    other = {"functionResponse": {**result["functionResponse"], "id": "b"}}
    rows: list[Row] = [
        *(says("user", "When?"), says("model", call, other_call), says("user", result)),
        *(says("model", "At eight"), says("user", other), says("model", "Both at eight")),
        says("user", "Thanks"),
    ]
    found = fitted(rows, 1_000)

    assert found.rows == [*rows[:2], says("user", result, other), rows[3], *rows[5:]]
    assert [decision.reason for decision in found.decisions[1:5]] == [
        *("fits", "result_moved", "fits", "result_moved")
    ]


def test_a_call_of_gemini_follows_the_user() -> None:
    """Where the user's message before it was dropped, it is kept too, or else the call goes."""
    call = says("model", {"functionCall": {"name": "f", "args": {}}})
    result = says("user", {"functionResponse": {"name": "f", "response": {"at": "eight"}}})
    rows: list[Row] = [
        *(says("user", "Hello"), says("model", "Hello to you")),
        *(says("user", "When does it leave on Sundays?"), call, result),
        says("user", "Thanks"),
    ]
    # the first message, and of the others those with calls
    calls_first = SmartWindow(max_messages=5, preserve_initial=2, prioritize_tools=True)
    total = sum(decision.tokens for decision in fitted(rows, 1_000).decisions)

    whole = fitted(rows, total, calls_first)
    without = fitted(rows, total - 1, calls_first)

    assert whole.rows == rows
    assert without.rows == [rows[0], rows[1], rows[5]]
    assert outcomes(without)[3] == ("dropped", "no_opening")


def test_the_words_behind_a_result_keep_the_message_before_its_call() -> None:
    """In Gemini's shape the user's newest words may be in the unit of a call."""
    call = says("model", {"functionCall": {"name": "f", "args": {}}})
    response = {"functionResponse": {"name": "f", "response": {"at": "eight"}}}
    rows: list[Row] = [
        *(says("user", "Hello"), says("model", "Hello to you"), says("user", "When?"), call),
        says("user", response, "And on Sundays?"),
    ]
    least = sum(decision.tokens for decision in fitted(rows, 1_000).decisions[2:])

    assert fitted(rows, least).rows == rows[2:]
