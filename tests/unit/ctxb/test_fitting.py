"""`fit` is one call for any list: the default finds what the question needs, and says why."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import pytest

from ctxb import BudgetExceededError, MessageError, SlidingWindowStrategy, fit, strategies
from formatters.model import Count
from formatters.native import CLEARED

SYSTEM = {"role": "system", "content": "Be brief."}
PIER = {"role": "assistant", "content": "The rowing boat is at the northern pier, code 4711."}
BLANK = {"type": "text", "text": " "}
QUESTION = {"role": "user", "content": "What was the code of the rowing boat?"}


def talk(turns: int = 60) -> list[dict[str, Any]]:
    """Return a conversation in which one old answer has what is asked at its end."""
    rows: list[dict[str, Any]] = [SYSTEM]
    for turn in range(turns):
        rows.append({"role": "user", "content": f"How is the weather on day {turn}?"})
        rows.append({"role": "assistant", "content": f"On day {turn} it rains in the hills."})
    rows[8] = PIER
    return [*rows, QUESTION]


def test_an_old_answer_to_the_question_is_kept() -> None:
    """By default, older messages are ranked by the user's newest one."""
    found = fit(talk(), 300)

    assert found.messages[0] is SYSTEM
    assert found.messages[-1] is QUESTION
    assert any(message is PIER for message in found.messages)
    assert found.usage.total <= 300 < found.usage.given
    assert found.decisions[8].outcome == "kept"
    assert found.decisions[8].score == max(found.decisions[i].score or 0 for i in range(1, 121))


@pytest.mark.parametrize(
    "strategy",
    [None, "relevance", {"name": "relevance", "recent_share": 0.0}, strategies.Relevance()],
)
def test_a_question_of_ones_own_ranks(strategy: Any) -> None:
    """However the strategy that ranks is named; the newest message is kept all the same."""
    rows = [*talk()[:-1], {"role": "user", "content": "Thanks."}]
    found = fit(rows, 300, question=QUESTION["content"], strategy=strategy)

    assert any(message is PIER for message in found.messages)
    assert found.messages[-1] is rows[-1]


def test_other_strategies_can_be_chosen() -> None:
    """By name, or as an object; a message that they leave out has their reason."""
    newest = fit(talk(), 300, strategy="oldest_first")
    window = fit(talk(), 300, strategy=strategies.SlidingWindow(window_size=3))

    assert PIER not in newest.messages
    assert newest.decisions[8].reason == "older"
    assert newest.messages[1:] == talk()[-len(newest.messages) + 1 :]
    assert len(window.messages) == 4
    assert (
        window.decisions[8].detail == "it is outside the window of messages that the strategy keeps"
    )


def test_a_strategy_over_lists_is_refused() -> None:
    """It has methods of its own."""
    with pytest.raises(TypeError, match=r"SlidingWindowStrategy .*compact"):
        fit(talk(), strategy=SlidingWindowStrategy(3, 100))  # type: ignore[arg-type]


def test_tools_take_their_tokens(count: Count) -> None:
    """As JSON, from the same budget."""
    tools = [{"name": "search", "description": "Search the web. " * 10}]
    found = fit(talk(), 300, tools=tools)

    assert found.usage.tools == count(json.dumps(tools, separators=(",", ":")))
    assert found.usage.total == found.usage.tools + found.usage.messages <= 300


@pytest.mark.parametrize(
    ("model", "tokenizer", "exact"),
    [
        (None, "o200k_base", True),
        ("gpt-4o", "o200k_base", True),
        ("gpt-4", "cl100k_base", True),
        ("somebody/else-7b", "o200k_base", False),
    ],
)
def test_the_model_chooses_the_tokenizer(model: str | None, tokenizer: str, exact: bool) -> None:
    """A model that isn't known is counted as most are, and the usage says so."""
    usage = fit(talk(), 300, model=model).usage
    assert (usage.tokenizer, usage.exact) == (tokenizer, exact)


def test_a_model_that_is_not_known_is_named() -> None:
    """With the known name that is most like it, in the result and in the table."""
    fitted = fit(talk(), 300, model="gpt-4q")

    (warning,) = fitted.warnings
    assert warning.startswith("'gpt-4q' is no known model, so o200k_base estimates its tokens")
    assert "; did you mean gpt-4" in warning
    assert "warning: 'gpt-4q' is no known model" in fitted.explain()
    assert fit(talk(), 300, model="gpt-4o").warnings == fit(talk(), 300).warnings == ()


def test_a_strategy_that_keeps_too_much_is_named() -> None:
    """Its choice isn't what is returned."""
    fitted = fit(talk(), 300, strategy="none")

    assert fitted.warnings == ("none kept more than fits; the oldest messages were dropped too",)
    assert {d.reason for d in fitted.decisions} == {"fits", "insufficient"}
    assert fit(talk(), 30_000, strategy="none").warnings == ()


def test_an_estimate_is_kept_too() -> None:
    """A model without a public tokenizer is counted with a margin."""
    usage = fit(talk(), 300, model="claude-4-5-sonnet").usage

    assert usage.tokenizer.startswith("o200k_base*")
    assert not usage.exact
    assert usage.total <= 300


def test_content_of_other_kinds_stays_as_it_is() -> None:
    """Images and their texts are the objects that were given."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    rows = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    fitted = fit(rows, 50)

    assert fitted.messages[0] is rows[0]
    assert not fitted.usage.exact
    assert fitted.warnings == (
        "images, sounds and files aren't counted: 1 message, such as messages[0];"
        " pass a smaller max_tokens",
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"refusal": "I can't help with that."},
        {"function_call": {"name": "look", "arguments": '{"at":"the northern pier"}'}},
    ],
)
def test_refusals_and_older_calls_are_counted(answer: dict[str, Any]) -> None:
    """Their texts count, so nothing warns that they don't; a sound beside them doesn't count."""
    row = {"role": "assistant", "content": None, **answer}
    fitted = fit([QUESTION, row, QUESTION], 100)

    assert fitted.decisions[1].tokens > 4
    assert (fitted.usage.exact, fitted.warnings) == (True, ())
    assert not fit([QUESTION, {**row, "audio": {"id": "a1"}}, QUESTION], 100).usage.exact


LONG = "why " * 500
THOUGHT = {"type": "thinking", "thinking": LONG, "signature": "c2ln"}


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "assistant", "content": "So.", "reasoning_content": LONG},
        {"role": "assistant", "content": "So.", "reasoning_details": [{"summary": LONG}]},
        {"role": "assistant", "content": "So.", "odd": {"deep": [LONG]}},
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "So."}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": LONG}]},
        {"role": "model", "parts": [{"text": LONG, "thought": True}, {"text": "So."}]},
        {"role": "model", "parts": [{"text": "So.", "thoughtSignature": LONG}]},
    ],
)
def test_reasoning_counts_against_the_budget(answer: dict[str, Any]) -> None:
    """A message that is too long with it is dropped; one that fits has an estimate."""
    rows = [QUESTION, answer, QUESTION]
    whole, part = fit(rows, 1_000), fit(rows, 100)

    assert whole.messages == rows
    assert whole.usage.total > 500
    assert whole.warnings == ()
    assert whole.usage.exact == ("thought" in str(answer) and "Signature" not in str(answer))
    assert part.messages == [QUESTION, QUESTION]
    assert part.usage.exact


#: The keys of a part, as Google's library dumps them.
PART = dict.fromkeys(
    ("text", "thought", "thought_signature", "inline_data", "file_data", "function_call")
)


@pytest.mark.parametrize(
    "dumped",
    [
        {"content": "So.", "annotations": [], "audio": None, "function_call": None},
        {"content": "So.", "reasoning_content": None, "provider_specific_fields": {"a": None}},
        {"content": "So.", "additional_kwargs": {}, "response_metadata": {"model_name": "m"}},
        {"content": [{"type": "output_text", "text": "So.", "annotations": [], "logprobs": []}]}
        | {"id": "msg_1", "type": "message", "status": "completed", "phase": "final_answer"},
        {"content": [{"type": "text", "text": "So.", "citations": None}], "model": "claude"}
        | {"id": "msg_1", "stop_reason": "end_turn", "usage": {"service_tier": "standard"}},
        {"parts": [{**PART, "text": "So."}]},
    ],
)
def test_what_libraries_dump_has_no_tokens(dumped: dict[str, Any]) -> None:
    """Keys without words leave the count of an answer exact, and bring no warning."""
    row = {"role": "assistant", **dumped}
    fitted = fit([QUESTION, row, QUESTION], 100)

    assert fitted.decisions[1].tokens == 4 + 2
    assert fitted.usage.exact
    assert fitted.warnings == ()


def test_arguments_become_json() -> None:
    """OpenAI's API takes a text; other calls of the message stay as they are."""
    function = {"name": "look", "arguments": {"at": "sea"}}
    calls = [
        {"id": "1", "type": "function", "function": function},
        {"id": "2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": number, "content": "There."} for number in "12"),
    ]
    fitted = fit(rows, 100)

    written = {"name": "look", "arguments": '{"at":"sea"}'}
    assert fitted.messages[1]["tool_calls"] == [{**calls[0], "function": written}, calls[1]]
    assert fitted.decisions[1].reason == "arguments_mended"


def test_calls_get_their_type() -> None:
    """OpenAI's API requires one of calls of functions, and a name; rows of history have none."""
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": "1", "function": {**function, "name": ""}}]
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "There."},
        {"role": "AI", "metadata": {"tool_calls": [{"id": "2", "function": function}]}},
        {"role": "TOOL", "content": "Here.", "metadata": {"tool_call_id": "2"}},
    ]
    fitted = fit(rows, 100)

    call = {"id": "1", "type": "function", "function": {**function, "name": "unknown"}}
    assert fitted.messages == [{**rows[0], "tool_calls": [call]}, *rows[1:]]
    assert [decision.reason for decision in fitted.decisions] == ["form_mended", *["fits"] * 3]


LOOK = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("given", "formed"),
    [
        ({"role": "user", "tool_calls": []}, {"role": "user"}),
        ({"role": "user", "name": "Ana María"}, {"role": "user", "name": "Ana_María"}),
        ({"role": "user", "name": ""}, {"role": "user"}),
        (
            {"role": "user", "content": ["So", {"text": "?"}, None]},
            {"role": "user", "content": [{"type": "text", "text": each} for each in ("So", "?")]},
        ),
    ],
)
def test_chat_messages_get_the_form_of_the_api(
    given: dict[str, Any], formed: dict[str, Any]
) -> None:
    """What OpenAI's API would refuse is changed, and the decision says so."""
    fitted = fit([{"content": "So?", **given}], 100)

    assert fitted.messages == [{"content": "So?", **formed}]
    assert (fitted.decisions[0].outcome, fitted.decisions[0].reason) == ("repaired", "form_mended")


@pytest.mark.parametrize(
    "calls",
    [
        [{"id": "1", "name": "look", "arguments": "{}"}],
        [{"id": "1", "function": {}, "name": "look", "arguments": "{}"}],
        [{**LOOK, "type": "tool_call"}, None],
        [{**LOOK, "id": 1}],
    ],
)
def test_calls_get_the_form_of_the_api(calls: list[object]) -> None:
    """Whatever it is that their library makes of them."""
    result = {"role": "tool", "tool_call_id": "1", "content": "There."}
    fitted = fit([{"role": "assistant", "content": [], "tool_calls": calls}, result], 100)

    called = {"role": "assistant", "content": None, "tool_calls": [LOOK]}
    assert fitted.messages == [called, result]
    assert [each.reason for each in fitted.decisions] == ["form_mended", "fits"]


def test_what_is_in_the_form_stays_the_same_object() -> None:
    """Tuples are as good as lists, and a result's name is no speaker's."""
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": (LOOK,)},
        {"role": "tool", "tool_call_id": "1", "content": "There.", "name": "fs/look"},
        {"role": "user", "content": ({"type": "text", "text": "So?"},)},
    ]
    assert all(map(is_, fit(rows, 100).messages, rows))
    values = {**rows[1], "content": [{"km": 4}]}
    assert fit([rows[0], values], 100).messages[1]["content"] == '[{"km": 4}]'


def test_ids_become_texts() -> None:
    """Those of calls and of their results."""
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [{**call, "id": 7}]},
        {"role": "tool", "tool_call_id": 7, "content": "There."},
    ]

    assert fit(rows, 100).messages == [
        {**rows[0], "tool_calls": [{**call, "id": "7"}]},
        {**rows[1], "tool_call_id": "7"},
    ]


def test_a_call_without_an_id_keeps_its_result() -> None:
    """The result's id is of no use, since no call has it: both get a new one."""
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "There."},
    ]
    fitted = fit(rows, 100)

    (sent,) = fitted.messages[0]["tool_calls"]
    assert fitted.messages[1] == {**rows[1], "tool_call_id": sent["id"]}
    assert [decision.reason for decision in fitted.decisions] == ["call_renamed"] * 2


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (
            {"role": "user", "content": [{"type": "text", "content": "5"}]},
            r"messages\[0\]\.content\[0\] has no text, but 'content': write it at 'text'",
        ),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "has 5 at 'text': convert"),
        (
            {"role": "user", "content": [{"type": "tool_result", "content": {"temp": 7}}]},
            "has {'temp': 7} at 'content': convert it to a text",
        ),
        ({"role": "assistant", "tool_calls": {"id": "c"}}, "at 'tool_calls': write a list of c"),
        ({"type": "function_call"}, "convert items such as 'function_call' to chat messages"),
        ({"role": "function", "name": "f", "content": "x"}, "to tool_calls and the role tool"),
    ],
)
def test_what_would_be_lost_is_refused(message: dict[str, Any], error: str) -> None:
    """With its place and a remedy."""
    with pytest.raises(MessageError, match=error):
        fit([message, {"role": "user", "content": "So?"}], 100)


def test_equal_messages_are_decided_on_each() -> None:
    """The same object may be in a list twice."""
    again = {"role": "user", "content": "Again?"}
    found = fit([again, {"role": "assistant", "content": "Yes."}, again], 50)

    assert found.messages[0] is found.messages[2] is again
    assert [decision.outcome for decision in found.decisions] == ["kept"] * 3


def test_a_list_without_a_user_is_fitted() -> None:
    """By the newest message; an empty one is empty."""
    rows = [{"role": "assistant", "content": f"Note {number}: all is well."} for number in range(9)]

    assert fit(rows, 40).messages[-1] is rows[-1]
    assert fit([], 1).messages == []
    assert fit(iter(rows), 40) == fit(rows, 40)


def test_what_is_always_kept_has_to_fit() -> None:
    """The error has the sizes, the largest first, and the budget that would do."""
    rows = [SYSTEM, {"role": "user", "content": "word " * 500}]
    with pytest.raises(BudgetExceededError) as raised:
        fit(rows, 100, tools=[{"name": "f"}])

    assert re.fullmatch(
        r"what is always kept needs 5\d\d tokens, 4\d\d more than max_tokens: messages\[1\] 50\d,"
        r" tools \d, messages\[0\] 7; raise max_tokens to 5\d\d, or shorten these",
        str(raised.value),
    )


def test_an_answer_without_its_question_is_no_beginning() -> None:
    """Where a kept answer would be first, the message before it is kept as well, if it fits."""
    rows = talk()
    for budget in range(40, 400, 20):
        assert fit(rows, budget).messages[1]["role"] == "user"
    small = fit([{"role": "user", "content": "word " * 90}, PIER, QUESTION], 50)
    assert [decision.reason for decision in small.decisions] == ["no_room", "no_opening", "fits"]


@pytest.mark.parametrize(
    ("roles", "wrap"),
    [
        ("user/assistant", lambda text: {"content": text}),
        ("human/ai", lambda text: {"content": text}),
        ("user/assistant", lambda text: {"content": [{"type": "text", "text": text}]}),
        ("user/model", lambda text: {"parts": [{"text": text}]}),
    ],
)
def test_an_answer_to_nothing_is_no_beginning(
    roles: str, wrap: Callable[[str], dict[str, Any]]
) -> None:
    """A first message of the user's without text isn't sent, so its answer isn't, either.

    The newest message is kept all the same.
    """
    user, model = roles.split("/")
    said = ((user, " "), (model, "Hello"), (user, "Where is the key?"), (model, "At the pier"))
    rows = [{"role": speaker, **wrap(text)} for speaker, text in said]
    fitted, answer = fit(rows), fit(rows[:2])

    assert fitted.messages == rows[2:]
    reasons = [decision.reason for decision in fitted.decisions]
    assert reasons == ["empty", "no_opening", "fits", "fits"]
    assert answer.messages == rows[1:2]


def test_calls_in_openais_shape_need_no_beginning() -> None:
    """Its API accepts an answer first."""
    call = {"role": "assistant", "content": None, "tool_calls": [LOOK]}
    result = {"role": "tool", "tool_call_id": "1", "content": "A boat"}
    rows: list[dict[str, Any]] = [{"role": "user", "content": ""}, call, result, PIER, QUESTION]

    assert fit(rows).messages == rows[1:]


def test_an_answer_whose_question_is_kept_lacks_no_opening() -> None:
    """With its question it didn't fit; then a shorter answer took the tokens."""
    rows = [
        {"role": "user", "content": "Please check the oven."},
        {"role": "assistant", "content": "Deck 1: fuse F12 is blown, and coil E47 is dead."},
        {"role": "user", "content": "And the van?"},
        {"role": "assistant", "content": "The van is fine."},
        {"role": "user", "content": "Which fuse is blown?"},
    ]
    for budget in range(30, 39):
        assert fit(rows, budget).decisions[1].reason == "no_room"
    assert fit(rows, 39).decisions[1].reason == "fits"


def test_a_result_that_precedes_its_call_is_moved_and_no_other_message() -> None:
    """It goes behind messages that it was before, which stay where they are."""
    function = {"name": "f", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "A"},
        {"role": "tool", "tool_call_id": "c1", "content": "the result"},
        {"role": "user", "content": "B"},
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "C"},
    ]
    fitted = fit(rows, 1_000)

    assert [rows.index(message) for message in fitted.messages] == [0, 2, 3, 4, 1, 5]
    reasons = [decision.reason for decision in fitted.decisions]
    assert reasons == ["fits", "result_moved", *["fits"] * 4]


def test_answers_leave_no_room_empty() -> None:
    """Where the message before an answer is too long, a shorter one opens the conversation."""
    cat = [
        {"role": "user", "content": "My cat is called Mimi."},
        {"role": "assistant", "content": "Noted: Mimi."},
    ]
    long = {"role": "user", "content": "Explain the engine of the boat, with all details. " * 9}
    answer = {"role": "assistant", "content": "The engine of the boat needs oil 10W-40."}
    asked = {"role": "user", "content": "Which oil does the engine of the boat need?"}

    for budget, kept in ((45, [cat[0], answer, asked]), (55, [*cat, answer, asked])):
        assert fit([*cat, long, answer, asked], budget).messages == kept
    # none of the first answers can open it, and all else that fits is there
    fitted = fit([long, answer, long, answer, *cat, asked], 40)
    assert fitted.messages == [*cat, asked]
    assert [each.reason for each in fitted.decisions][:4] == [
        "no_room",
        "no_opening",
        "no_room",
        "no_room",
    ]


def test_the_best_message_stays_beside_answers_without_an_opener() -> None:
    """An answer of no relevance that can't open what is kept costs nothing else its place."""
    story = {"role": "user", "content": "Tell me a long story about the sea and the wind. " * 2}
    yes = {"role": "assistant", "content": "Yes."}
    engine = {"role": "user", "content": "The engine of the boat takes 10W-40 oil, 4 litres. " * 2}
    asked = {"role": "user", "content": "Which oil does the engine of the boat take?"}
    rows = [story, yes, engine, {"role": "assistant", "content": "Noted."}, asked]

    for budget in range(53, 66):
        kept = fit(rows, budget)
        assert engine in kept.messages
        assert kept.messages[0]["role"] == "user"


def test_a_call_of_gemini_leaves_its_room_to_others() -> None:
    """If no message of the user before it fits, the rest is filled by the score."""
    small = [says("user", "My cat is Mimi."), says("model", "Noted: Mimi."), says("user", "Short.")]
    call = says("model", {"functionCall": {"name": "look", "args": {"q": "engine oil boat"}}})
    response = {"name": "look", "response": {"r": "the engine of the boat needs oil 10W-40"}}
    rows: list[dict[str, Any]] = [
        *small,
        says("model", "Which oil does the engine of the boat need? 10W-40."),
        *(says("user", "Explain the engine of the boat. " * 20), call),
        *(says("user", {"functionResponse": response}), says("model", "Oil.")),
        says("user", "Which oil does the engine of the boat need?"),
    ]
    fitted = fit(rows, 75)

    assert fitted.messages == [*rows[:4], *rows[7:]]
    assert [each.reason for each in fitted.decisions][4:7] == ["no_room", *["no_opening"] * 2]


def says(role: str, part: str | dict[str, Any]) -> dict[str, Any]:
    """Return a content of Gemini's with one part."""
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part]}


def test_a_reason_never_contradicts_the_scores() -> None:
    """Others score higher than a message of that reason; one that was passed over had no room."""
    rows = talk()
    rows[30] = {"role": "user", "content": "The code of the boat? " + "I forgot it again. " * 20}
    seen: set[str] = set()

    for budget in range(150, 900, 50):
        found = fit(rows, budget).decisions
        seen |= {each.reason for each in found}
        kept = [each.score for each in found if each.outcome == "kept" and each.score is not None]
        dropped = [each.score for each in found if each.reason == "score"]
        assert all(score is not None and score <= min(kept) for score in dropped)
    assert {"score", "no_room"} <= seen


class Dumped:
    """A message as libraries have it."""

    def model_dump(self) -> Mapping[str, str]:
        """Return it as a dictionary."""
        return {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ("Hello", "messages is 'Hello': pass a list of messages"),
        (None, "messages is None: pass a list of messages"),
        ({"model": "x", "messages": []}, "messages is a single mapping: pass its 'messages'"),
        ({"contents": []}, "messages is a single mapping: pass its 'contents'"),
        (QUESTION, "messages is a single mapping: pass a list with it"),
        ([SYSTEM, "Hello"], 'messages[1] is no mapping but \'Hello\': write {"role": "user", '),
        ([Dumped()], "pass its model_dump()"),
        ([("user", "Hello")], "messages[0] is no mapping but ('user', 'Hello'): convert it first"),
        ([{"content": "Hello"}], "messages[0] has no role: it needs one of system, developer, "),
        ([{"role": "usr", "content": "x"}], "messages[0] has the role 'usr': it needs one of "),
        ([{"role": "usr", "content": "x"}], "did you mean user?"),
        ([{"role": "user", "text": "x"}], "messages[0] has no content: write a text or a list"),
        ([{"role": "tool", "content": {"a": 1}}], "messages[0] has {'a': 1} at 'content': conve"),
        (
            [{"role": "user", "contentt": "x"}],
            "messages[0] has no content, but 'contentt': write a ",
        ),
        ([{"role": "user", "content": 3}], "messages[0] has 3 at 'content': convert it to a text"),
        ([{"role": "user", "content": b"x"}], "messages[0] has bytes at 'content': decode them"),
        ([{"type": "function_call", "call_id": "c", "name": "f"}], "messages[0] has no role"),
        ([{"role": "user", "content": [Dumped()]}], "messages[0].content[0] is no mapping but "),
        ([{"role": "user", "content": [Dumped()]}], "pass its model_dump()"),
        ([{"role": "model", "parts": ["a", object()]}], "messages[0].parts[1] is no mapping but"),
        (
            [{"role": "assistant", "content": None, "tool_calls": [Dumped()]}],
            "messages[0].tool_calls[0] is no mapping but ",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f"}}]}],
            "messages[0].tool_calls[0] calls a custom tool: only calls of functions",
        ),
    ],
)
def test_an_unknown_shape_is_an_error_with_its_place_and_a_remedy(
    messages: Any, error: str
) -> None:
    """Instead of a message that is left out unnoticed."""
    with pytest.raises(MessageError) as raised:
        fit(messages)
    assert error in str(raised.value)


def test_results_precede_other_blocks() -> None:
    """Anthropic's API requires it; the message itself stays as it is."""
    asked = {"role": "user", "content": "Where is my boat?"}
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "At the lake."}
    text = {"type": "text", "text": "And the key?"}
    given = {"role": "user", "content": [text, answer]}
    fitted = fit([asked, {"role": "assistant", "content": [call]}, given], 300)

    assert fitted.messages[-1] == {"role": "user", "content": [answer, text]}
    assert given["content"] == [text, answer]
    assert [(d.outcome, d.reason) for d in fitted.decisions] == [
        *[("kept", "fits")] * 2,
        ("repaired", "result_moved"),
    ]
    assert fit(fitted.messages, 300).messages[-1] is fitted.messages[-1]


def test_a_cleared_result_is_kept_before_other_blocks() -> None:
    """It is found by its place in the message as it was given."""
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "At the lake. " * 30}
    text = {"type": "text", "text": "And the key?"}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my boat?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [text, answer]},
        {"role": "assistant", "content": "On the hook."},
        {"role": "user", "content": "Thanks."},
    ]
    clearing = strategies.ToolResultClearing(keep_recent_n=0)
    kept = fit(given, 100, strategy=clearing).messages[2]["content"]

    assert kept == [{**answer, "content": CLEARED}, text]


def test_blank_texts_are_left_out() -> None:
    """Anthropic's API refuses them, even where its model wrote them."""
    blank, said = {"type": "text", "text": "\n\n"}, {"type": "text", "text": "I look."}
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "At the lake."}
    asked = {"role": "user", "content": "Where is my boat?"}
    given = {"role": "assistant", "content": [said, blank, call]}
    fitted = fit([asked, given, {"role": "user", "content": [answer]}], 300)

    assert fitted.messages[1] == {"role": "assistant", "content": [said, call]}
    assert [decision.reason for decision in fitted.decisions] == ["fits", "blank_text", "fits"]
    assert given["content"] == [said, blank, call]


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("content", [{"type": "image", "source": {}}, {"type": "text", "text": " "}]),
        ("content", [{"type": "tool_result", "tool_use_id": "t1", "content": "so"}, BLANK]),
        ("parts", [{"text": "I look."}, {"text": ""}]),
    ],
)
def test_a_blank_text_goes_from_any_list_of_parts(key: str, parts: list[Any]) -> None:
    """It is no message of its own, so the reason is the block's."""
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": [call]},
    ]
    given = [*(asked if "tool_use_id" in parts[0] else []), {"role": "user", key: parts}]
    fitted = fit(given, 300)

    assert fitted.messages[-1] == {"role": "user", key: parts[:1]}
    assert fitted.decisions[-1].reason == "blank_text"


def test_parts_that_are_all_blank_make_a_message_empty() -> None:
    """A signature of Gemini's model may stand with an empty text, so it stays."""
    blank: list[dict[str, Any]] = [
        {"role": "user", "content": [BLANK, BLANK]},
        {"role": "user", "content": "So?"},
        {"role": "model", "parts": [{"text": "", "thoughtSignature": "a"}, {"text": "So."}]},
    ]
    fitted = fit(blank, 300)

    assert fitted.messages == blank[1:]
    assert [decision.reason for decision in fitted.decisions] == ["empty", "fits", "fits"]


def test_a_repaired_message_is_made_for_each_call() -> None:
    """What a caller adds to it isn't in the next one."""
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "At the lake."}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my boat?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [BLANK, answer]},
    ]
    first = fit(given, 300).messages[-1]
    first["content"].append({"type": "text", "text": "Be brief."})

    assert fit(given, 300).messages[-1] == {"role": "user", "content": [answer]}


def test_what_is_returned_as_it_was_is_kept() -> None:
    """Whatever is repaired elsewhere; parallel results of a message may have any order."""
    uses = [{"type": "tool_use", "id": id_, "name": "find", "input": {}} for id_ in "ab"]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": id_} for id_ in "ba"]
    calls = [{"functionCall": {"name": "f", "args": {}}}]
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my boat?"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
        {"role": "model", "parts": calls},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"r": 1}}}]},
        {"role": "user", "content": " "},
    ]
    fitted = fit(given, 300)

    assert all(map(is_, fitted.messages, given))
    assert [each.outcome for each in fitted.decisions] == [*["kept"] * 5, "filtered"]


def test_a_row_of_history_may_have_a_mapping_as_its_content() -> None:
    """APIs refuse it in chat messages; a row is none."""
    row = {"role": "HUMAN", "content": {"type": "text", "text": "Where is my boat?"}}

    assert fit([row], 300).messages == [row]


def test_a_message_whose_result_goes_with_its_call_is_truncated() -> None:
    """Its words stay."""
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": "boat " * 40}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "At the lake."}
    text = {"type": "text", "text": "And now?"}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my boat?"},
        {"role": "assistant", "content": [call]},
        {"role": "assistant", "content": "Wait."},
        {"role": "user", "content": [answer, text]},
    ]
    fitted = fit(given, 30, strategy="oldest_first")

    assert fitted.messages[-1] == {"role": "user", "content": [text]}
    assert (fitted.decisions[3].outcome, fitted.decisions[3].reason) == ("truncated", "older")


@pytest.mark.parametrize(
    ("key", "inside"), [("content", True), ("parts", True), ("metadata", False)]
)
def test_values_that_are_nested_too_deeply_are_refused(key: str, inside: bool) -> None:
    """With their place, so are those that contain themselves."""
    deep: dict[str, Any] = {"type": "json"}
    deep["a"] = [deep]
    message = {"role": "user", "content": "So?", key: [deep] if inside else deep}

    with pytest.raises(MessageError, match=r"messages\[0\] is nested deeper than 64 levels"):
        fit([message], 300)
    with pytest.raises(MessageError, match=r"tools\[0\] is nested"):
        fit([], 300, tools=[deep])


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ({"arguments": "{}"}, "has no name: write the function's name at 'name'"),
        ({"name": "f", "args": {"a": 1}}, "has no arguments, but 'args'"),
    ],
)
def test_calls_that_no_api_accepts_are_refused(function: dict[str, Any], error: str) -> None:
    """A name can't be guessed, and arguments elsewhere would be lost."""
    calls = [{"id": "c", "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": "c", "content": "Done"}

    with pytest.raises(MessageError, match=re.escape(f"messages[1].tool_calls[0] {error}")):
        fit(
            [
                {"role": "user", "content": "So?"},
                {"role": "assistant", "tool_calls": calls},
                result,
            ],
            99,
        )


def test_keys_that_json_lacks_are_refused() -> None:
    """Wherever they are; numbers are written as texts."""
    call: dict[str, Any] = {"name": "move", "arguments": {"places": [{(1, 2): "here"}]}}
    calls = [{"id": "c", "function": call}]
    given: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "Done"},
    ]

    with pytest.raises(
        MessageError, match=r"^messages\[0\]\.tool_calls\[0\] has the key \(1, 2\), "
    ):
        fit(given, 100)
    with pytest.raises(MessageError, match=r"^messages\[0\]\.content has the key nan, which JSON"):
        fit([{"role": "user", "content": [{"type": "json", "json": {float("nan"): 1}}]}], 100)
    with pytest.raises(MessageError, match=r"^tools\[0\] has the key"):
        fit([], 100, tools=[{"type": "function", "function": {"parameters": {b"type": "object"}}}])
    # what isn't sent may have any
    assert fit([{"role": "user", "content": "So?", "metadata": {(1, 2): 3}}], 100).messages
    call["arguments"] = {1: "here"}
    sent: Any = fit(given, 100).messages[0]
    assert sent["tool_calls"][0]["function"]["arguments"] == '{"1":"here"}'


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"id": "t1", "name": "find", "input": {}}, "call_renamed"),
        ({"id": "t2", "name": "find it", "input": {}}, "name_mended"),
        ({"id": "t2", "name": "find", "input": "here"}, "arguments_mended"),
    ],
)
def test_calls_that_wait_for_results_say_what_changed(call: dict[str, Any], reason: str) -> None:
    """No placeholder was added, as the results may still come."""
    first = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "At the lake."}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my boat?"},
        {"role": "assistant", "content": [first]},
        {"role": "user", "content": [answer]},
        {"role": "assistant", "content": [{"type": "tool_use", **call}]},
    ]

    assert fit(given, 300).decisions[-1].reason == reason


@pytest.mark.parametrize("max_tokens", [0, -1, "3000", 2.5, True])
def test_a_budget_is_a_whole_number(max_tokens: Any) -> None:
    """Of at least one token."""
    with pytest.raises(ValueError, match="max_tokens has to be a whole number of at least 1"):
        fit(talk(), max_tokens)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"model": 4}, "model has to be a text, not 4"),
        ({"question": ["a"]}, "question has to be a text, not ['a']"),
        ({"tools": "search"}, "tools has to be a list of definitions, not 'search'"),
        ({"tools": {"type": "function"}}, "tools has to be a list of definitions, not {"),
        ({"max_token": 9}, "fit() has no such argument 'max_token'; use fit(messages, max_to"),
        ({"max_token": 9}, "; did you mean max_tokens?"),
        ({"tools": [{"type": "function"}, "search"]}, "tools[1] has to be a definition, not 'se"),
    ],
)
def test_an_argument_of_another_type_is_named(given: dict[str, Any], error: str) -> None:
    """A text as the tools would be counted as a list of letters."""
    with pytest.raises(TypeError) as raised:
        fit(talk(), **given)
    assert error in str(raised.value)


def test_the_explanation_is_the_table_of_the_command() -> None:
    """With the positions of the messages, and the totals below."""
    lines = fit(talk(), 300, strategy="oldest_first").explain().splitlines()

    assert lines[0].strip() == "Decisions"
    assert lines[2].split() == ["Messages", "Decision", "Tokens", "Why"]
    assert re.match(r" 1 … \d+ \(\d+\) +dropped +[\d,]+ +with all newer turns", lines[5])
    assert re.fullmatch(r"messages: kept \d+, dropped \d+", lines[-2])
    assert re.fullmatch(r"tokens: \d+ of 300, counted by o200k_base", lines[-1])
    assert fit([], 1).explain() == "messages: none\ntokens: 0 of 1, counted by o200k_base\n"


def test_it_is_imported_without_the_service() -> None:
    """Reading the models of the wire and the settings takes as long as all that `fit` needs."""
    program = "import sys; from ctxb import fit; print('pydantic' in sys.modules)"
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"
