"""REPLOID's functions over a history."""

import json
from typing import Any

import pytest

from service.budget.estimates import estimate_tokens
from service.budget.strategies.importance import (
    KEYWORD_WEIGHT,
    LENGTH_WEIGHT,
    RECENCY_WEIGHT,
    ROLE_WEIGHT_MODEL,
    ROLE_WEIGHT_SYSTEM,
    ROLE_WEIGHT_USER,
    Importance,
)
from service.conversation.pruning import (
    TARGET_UTILIZATION,
    auto_manage_context,
    get_context_stats,
    get_status,
    prune_context,
    score_context_importance,
    summarize_context,
)
from tests.unit.service.conversation.talk import (
    Said,
    calls,
    function_call,
    parts,
    response,
    result,
    results,
    said,
    uses,
)

HELLO = parts("user", "hello")


FAILED = parts("model", "ERROR: Failed")


GOODBYE = parts("user", "goodbye")


SHORT = [HELLO, FAILED, GOODBYE]


def sized(role: str, tokens: int) -> Said:
    """Return an item of n tokens."""
    empty = estimate_tokens(parts(role, ""))
    item = parts(role, "x" * (4 * (tokens - empty)))
    assert estimate_tokens(item) == tokens
    return item


#: The document's example: an instruction, two exchanges and a question.
ROLES = ("system", "user", "model", "user", "model", "user")


def turns(number: int) -> list[Said]:
    """Return n items of user and model in turn."""
    return [parts("model" if n % 2 else "user", f"turn {n}") for n in range(number)]


def test_constants_have_the_documents_names_and_values() -> None:
    """They are weights of a score up to 100, and the share of a limit."""
    assert (RECENCY_WEIGHT, KEYWORD_WEIGHT, LENGTH_WEIGHT) == (40, 15, 5)
    assert (ROLE_WEIGHT_SYSTEM, ROLE_WEIGHT_USER, ROLE_WEIGHT_MODEL) == (30, 20, 10)
    assert TARGET_UTILIZATION == 0.8


def test_an_item_is_estimated_as_its_whole_json() -> None:
    """With role and keys, a quarter of its characters rounded up."""
    assert [estimate_tokens(item) for item in SHORT] == [9, 11, 9]
    assert estimate_tokens("Hello, world!") == 4


def test_the_documents_scores() -> None:
    """70, 20, 18, 36, 34, 60; a system item has no place among the others."""
    example = [parts(role, "hi") for role in ROLES]

    assert score_context_importance(example[0], 0, 5) == 70
    assert [score_context_importance(item, n, 5) for n, item in enumerate(example[1:])] == [
        20,
        18,
        36,
        34,
        60,
    ]


@pytest.mark.parametrize(
    ("item", "points"),
    [
        (parts("user", "plain"), 20),
        (parts("assistant", "plain"), 10),
        (said("tool", "plain"), 10),
        (parts("odd", "plain"), 0),
        (parts("user", "error success tool CREATE:"), 45),
        (parts("user", "ERROR"), 35),
        (parts("user", "terrors"), 20),
        (parts("user", "x" * 1_001), 25),
        (parts("user", "x" * 5_001), 25),
        (parts("system", "an error"), 85),
        (parts("user", "plain", response(), {"text": "the tool"}), 30),
        (parts("model", function_call()), 10),
    ],
)
def test_role_keywords_and_length_score(item: Said, points: float) -> None:
    """Whole words in any case, 25 at most; 5 for a long text; the best message counts."""
    assert score_context_importance(item, 0, 10) == points


def test_weights_can_be_set() -> None:
    """For a score, and for pruning by it."""
    flat = Importance(recency_weight=0, role_weights={})

    assert score_context_importance(HELLO, 9, 10, importance=flat) == 0
    assert prune_context(SHORT, 20, importance=flat).pruned == [FAILED, GOODBYE]


def test_what_scores_highest_is_kept_within_the_target() -> None:
    """The document's example: an error stays, a greeting goes."""
    done = prune_context(SHORT, 25)

    assert done.pruned == [FAILED, GOODBYE]
    assert done.removed == [HELLO]
    assert done.stats == {"original": 29, "final": 20, "items_removed": 1, "items_kept": 2}
    assert not done.over_budget


def test_a_budget_for_four_of_six() -> None:
    """System, newest and the two of the highest scores stay, in their order."""
    history = [sized(role, 110) for role in ROLES]
    done = prune_context(history, 450)

    assert done.pruned == [history[n] for n in (0, 3, 4, 5)]
    assert done.stats == {"original": 660, "final": 440, "items_removed": 2, "items_kept": 4}


def test_within_the_target_nothing_is_done() -> None:
    """The result is the very list that was given."""
    done = prune_context(SHORT, 29)

    assert done.pruned is SHORT
    assert done.removed == []
    assert done.stats == {"original": 29, "final": 29, "items_removed": 0, "items_kept": 3}
    assert prune_context(SHORT, 500).pruned is SHORT
    assert prune_context([]).pruned == []


def test_what_always_stays_may_exceed_the_target() -> None:
    """System items and the newest, and the result says so; 0 is a target like any other."""
    history = [parts("system", "Be brief"), *SHORT, parts("system", "Be kind")]
    done = prune_context(history, 0)

    assert done.pruned == [history[0], GOODBYE, history[4]]
    assert done.over_budget


def test_the_newest_of_a_user_stays_behind_a_long_run() -> None:
    """REPLOID drops the request of the run."""
    question = sized("user", 50)
    steps = [sized("model", 40) for _ in range(5)]
    done = prune_context([sized("user", 50), question, *steps], 120)

    assert question in done.pruned
    assert done.pruned[-1] == steps[-1]


def test_a_call_goes_with_its_result() -> None:
    """And what answers no call goes first."""
    history = [
        said("user", "hi"),
        calls("1"),
        result("1", "x" * 400),
        result("2"),
        said("user", "?"),
    ]

    assert prune_context(history).pruned == [*history[:3], history[4]]
    assert prune_context(history).removed == [history[3]]
    assert prune_context(history, 60).pruned == [history[0], history[4]]
    assert prune_context(history, 60).removed == history[1:4]


def test_what_stood_next_to_a_moved_result_is_removed_by_itself() -> None:
    """The result stays with its call, and the text that came with it goes."""
    history = [uses("1"), said("user", "x" * 400), results("1", text="y" * 400), said("user", "?")]
    done = prune_context(history, 80)

    assert done.pruned == [uses("1"), results("1"), said("user", "?")]
    assert done.removed == [history[1], results(text="y" * 400)]


def test_results_that_were_joined_are_not_removed() -> None:
    """Their messages are there, as parts of another."""
    history = [uses("1", "2", "3"), results("1"), results("3"), said("user", "?")]
    done = prune_context(history)

    assert len(done.pruned) == 3
    assert done.removed == []
    assert done.stats["items_removed"] == 0


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("gemini-2.5-flash", 800_000),
        ("claude-4-5-sonnet", 160_000),
        ("gpt-5-2025-08-07", 102_400),
        ("anything else", 80_000),
        ("default", 80_000),
    ],
)
def test_a_target_is_four_fifths_of_the_models_limit(model: str, target: int) -> None:
    """By default; a history of exactly that size stays, one token more is pruned."""
    fits = [sized("user", 100), sized("user", target - 100)]
    exceeds = [sized("user", 101), sized("user", target - 100)]

    assert auto_manage_context(fits, model).pruned is fits
    assert auto_manage_context(exceeds, model).pruned == exceeds[1:]
    assert prune_context(exceeds, model_name=model).removed == exceeds[:1]
    assert get_context_stats(exceeds, model)["needs_pruning"]
    assert not get_context_stats(fits, model)["needs_pruning"]


def test_statistics_report_how_full_a_context_is() -> None:
    """In whole per cents of the limit, more than 100 where it is too full."""
    assert get_context_stats([sized("user", 80_001)]) == {
        "items": 1,
        "tokens": 80_001,
        "limit": 100_000,
        "utilization_percent": 80,
        "needs_pruning": True,
    }
    assert not get_context_stats([sized("user", 80_000)])["needs_pruning"]
    assert get_context_stats([sized("user", 130_500)])["utilization_percent"] == 131
    assert get_context_stats([])["utilization_percent"] == 0


def test_older_turns_become_a_sentence() -> None:
    """It is in their place and counts them."""
    history = turns(60)
    done = summarize_context(history)

    assert done.summarized == [done.summary, *history[50:]]
    assert done.summary == parts(
        "system", "Previous 50 turns: 25 user messages, 25 model responses, 0 tool calls"
    )
    assert done.stats == {"summarized_items": 50, "kept_items": 10}


def test_few_turns_stay_as_they_are() -> None:
    """The very list that was given, without a summary."""
    history = turns(10)
    done = summarize_context(history)

    assert done.summarized is history
    assert done.summary is None
    assert done.stats == {"summarized_items": 0, "kept_items": 10}


@pytest.mark.parametrize(
    ("history", "summary"),
    [
        ([HELLO], parts("system", "{}")),
        ([parts("user", {"text": "hello"})], parts("system", {"text": "{}"})),
        ([said("user", "hello")], said("system", "{}")),
    ],
)
def test_a_summary_has_the_shape_of_its_history(history: list[Said], summary: Said) -> None:
    """Of parts, plain or with keys, or a chat message; 0 items leave it alone."""
    sentence = "Previous 1 turn: 1 user message, 0 model responses, 0 tool calls"

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.format(sentence)
        if isinstance(value, list):
            return [filled(each) for each in value]
        return {key: filled(each) for key, each in value.items()}

    assert summarize_context(history, 0).summarized == [filled(summary)]


def test_system_items_stay_and_calls_are_counted() -> None:
    """The sentence follows the earlier messages, and no call loses its result."""
    head, rule = parts("system", "Be brief"), parts("system", "Be kind")
    asked, answered = parts("model", function_call()), parts("user", response())
    history = [head, HELLO, asked, answered, rule, FAILED, GOODBYE]

    done = summarize_context(history, 2)

    assert done.summarized == [head, done.summary, rule, FAILED, GOODBYE]
    assert done.summary is not None
    assert done.summary["parts"] == [
        "Previous 2 turns: 1 user message, 1 model response, 1 tool call"
    ]
    assert done.stats == {"summarized_items": 3, "kept_items": 4}


def test_a_summary_is_where_its_turns_stood() -> None:
    """After the user's newest message, if a long run follows that."""
    steps = [each for n in range(3) for each in (calls(f"c{n}"), result(f"c{n}"))]
    question = said("user", "Go on")

    done = summarize_context([question, *steps], 3)

    assert done.summarized == [question, done.summary, *steps[4:]]


@pytest.mark.parametrize(
    ("characters", "state", "percent", "message"),
    [
        (None, "idle", 0, "Healthy"),
        (400, "active", 0, "Healthy"),
        (200_000, "active", 50, "Healthy"),
        (360_000, "warning", 90, "Needs pruning"),
    ],
)
def test_the_state_is_that_of_the_window(
    characters: int | None, state: str, percent: int, message: str
) -> None:
    """Nothing said is idle, and more than 80 % of the window is a warning."""
    history = [] if characters is None else [{"role": "user", "content": "x" * characters}]
    status = get_status(history)

    assert (status["state"], status["utilization_percent"]) == (state, percent)
    assert status["message"] == message
    assert json.loads(json.dumps(status)) == status
