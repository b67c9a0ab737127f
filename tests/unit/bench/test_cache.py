"""What bench.cache reads in prompts, and what it counts."""

import pytest

from bench.cache.__main__ import LAYOUTS, WAYS, measured
from bench.cache.prompts import Prompt, Step, figures, prompt, same_tokens
from bench.recall.cases import Case
from tests.unit.bench.test_recall import said

MOMENT = {"role": "user", "content": "[THIS_MOMENT]\nboat"}
SYSTEM = {"role": "system", "content": "You are Ada."}


def chat(*words: str) -> Prompt:
    """Return a prompt with native history."""
    history = [{"role": "user", "content": each} for each in words]
    return prompt([SYSTEM, *history, MOMENT])


def test_history_is_found_in_either_layout() -> None:
    """Native messages up to the blocks after them, or the block by its tag."""
    recalled = {"role": "user", "content": "[RECALLED count=1]\nboat"}
    memory = {"role": "user", "content": "[SHARED_MEMORY]\nboat"}
    profile = {"role": "user", "content": "[FRIENDS_INFO]\nAnn"}
    native = prompt([SYSTEM, {"role": "user", "content": "hi"}, recalled, MOMENT])
    tagged = prompt([SYSTEM, memory, profile, recalled, MOMENT])

    assert [each.text for each in native.recent] == ["hi"]
    assert [each.text for each in tagged.recent] == [memory["content"]]
    for each in (native, tagged):
        assert [part.text for part in each.recalled] == [recalled["content"]]
    assert prompt([SYSTEM, MOMENT]).recent == []


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (["one two", "three"], 3),
        (["one two", "three", "four"], 3),
        (["one two", "five", "three"], 2),
        (["one", "three"], 1),
        (["two", "three"], 0),
        ([], 0),
    ],
)
def test_what_stayed_is_counted_from_the_beginning(now: list[str], same: int) -> None:
    """In tokens, up to the first that is another one."""
    assert same_tokens(chat(*now).recent, chat("one two", "three").recent) == same


def test_figures_are_means_over_builds() -> None:
    """The first build has none before it; what its history uses counts all the same."""
    first, second = chat("one two"), chat("one two", "three four")
    steps = [Step(first, None, ["one two"]), Step(second, first, ["three four", "five"])]
    reported = figures(steps, 20)

    assert reported["history_prefix"] == 0.5
    assert reported["utilisation"] == round((6 + 12) / 40, 4)
    assert (reported["recent_share"], reported["newest_present"], reported["builds"]) == (1, 0.5, 2)
    assert reported["whole_prefix"] < 1
    assert reported["moves"] == 0


async def test_a_chat_grows_turn_by_turn() -> None:
    """Each way and layout is built as often, as long as a human goes on; ours stays longer."""
    words = "We talked about soup and the weather and about nothing else at all"
    rows = [said(n, f"{n} {words}") for n in range(64)]
    reported = await measured([Case("c", rows, ())], 600)

    assert list(reported) == [*LAYOUTS, *(name for name in WAYS if name != "recall")]
    for layout in LAYOUTS:
        ours, other = reported[layout], reported["sliding_window"][layout]
        assert ours["builds"] == other["builds"] == 13
        assert ours["newest_present"] == 1
        assert ours["utilisation_most"] <= 1
        assert ours["history_prefix"] > other["history_prefix"]
