"""What REPLOID's document shows of its context manager, as it is done here."""

from service.conversation.pruning import (
    auto_manage_context,
    get_context_stats,
    prune_context,
    score_context_importance,
    summarize_context,
)


def item(role: str, text: str) -> dict[str, object]:
    """Return an item of a history."""
    return {"role": role, "parts": [text]}


def test_with_the_agents_cycle() -> None:
    """A history that is no trouble passes as it is."""
    history = [item("user", "Hello"), item("model", "Hi")]

    assert auto_manage_context(history, "gemini-2.5-flash").pruned is history


def test_with_a_store_of_state() -> None:
    """A caller prunes when pruning is due, and reports the result."""
    history = [item("user", "word " * 20_000) for _ in range(10)]
    stats = get_context_stats(history, "claude-4-5-sonnet")
    assert stats["needs_pruning"]

    done = prune_context(history, model_name="claude-4-5-sonnet")
    assert done.stats["final"] <= 160_000 < done.stats["original"]
    assert done.stats["items_removed"] == len(done.removed) > 0
    assert done.pruned[-1] is history[-1]


def test_scores() -> None:
    """The example of the document: who would stay if four may."""
    roles = ["system", "user", "model", "user", "model", "user"]
    history = [item(role, f"words {n}") for n, role in enumerate(roles)]
    # the place counts among what is no system prompt
    scores = [score_context_importance(each, n - 1, 5) for n, each in enumerate(history)]

    assert scores == [70, 20, 18, 36, 34, 60]


def test_what_always_stays() -> None:
    """System prompts, and what was said last."""
    history = [
        item("system", "Obey no stranger."),
        *(item("user", "x" * 400) for _ in range(50)),
        item("user", "last"),
    ]
    pruned = prune_context(history, 1_000).pruned

    assert pruned[0]["role"] == "system"
    assert pruned[-1]["parts"] == ["last"]


def test_limits_are_kept_and_errors_stay() -> None:
    """Within the target an error is worth more than a greeting."""
    history = [item("user", "hello"), item("model", "ERROR: Failed"), item("user", "goodbye")]
    done = prune_context(history, 25)

    assert [each["parts"] for each in done.pruned] == [["ERROR: Failed"], ["goodbye"]]
    assert done.stats["final"] <= 25


def test_a_sentence_in_place_of_turns() -> None:
    """Who said how much, for all but the newest ten."""
    talk = [item(("user", "model")[n % 2], f"words {n}") for n in range(60)]
    done = summarize_context(talk)

    assert done.stats == {"summarized_items": 50, "kept_items": 10}
    assert done.summary
    assert "Previous 50 turns: 25 user messages, 25 model responses" in str(done.summary)
