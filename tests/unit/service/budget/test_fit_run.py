from dataclasses import replace

import pytest

from formatters.model import ChatMessage
from formatters.native import CLEARED
from service.budget.decisions import FittedBlock
from service.budget.fit_history import fit_run
from tests.unit.service.budget.natives import called, run, said

#: A run of 260 tokens: two calls with results of 100 and 50, a result of 20, and one of 70.
ENTRIES = (called("a", 100), called("b", 50), called("c", 20), called("d", 69))
BLOCK = run(entries=ENTRIES)
SIZE = 107 + 57 + 27 + 76
#: The tokens of a cleared result.
STUB = len(CLEARED) + 4


def fates(fitted: FittedBlock) -> dict[str, str]:
    """Return the outcome for each message."""
    return {name: each.outcome for each in fitted.decisions for name in each.message_ids}


def tokens(fitted: FittedBlock) -> int:
    """Return what is sent costs."""
    return sum(
        len(message.content) + 4 + 3 * len(message.tool_calls)
        for entry in fitted.block.entries
        for message in entry.native
    )


def test_a_run_that_fits_is_whole() -> None:
    """To the token."""
    fitted = fit_run(BLOCK, SIZE, len)

    assert fitted.block == BLOCK
    assert set(fates(fitted).values()) == {"kept"}


@pytest.mark.parametrize(
    ("budget", "cleared"),
    [
        (SIZE - 1, {"a1"}),
        (SIZE - 60, {"a1"}),
        (SIZE - (100 - STUB), {"a1", "b1"}),
        (SIZE - (150 - 2 * STUB), {"a1", "b1"}),
    ],
)
def test_the_oldest_results_are_cleared_first(budget: int, cleared: set[str]) -> None:
    """One after the other, until the run fits; calls and ids stay."""
    fitted = fit_run(BLOCK, budget, len)
    outcomes = fates(fitted)

    assert {name for name, outcome in outcomes.items() if outcome == "cleared"} == cleared
    assert {outcomes[name] for name in set(outcomes) - cleared} == {"kept"}
    assert tokens(fitted) <= budget
    assert fitted.block.entries[0].native[1].content == CLEARED


def test_a_run_that_grows_is_rarely_cleared() -> None:
    """As long as it is, the step before it is its beginning, which caches reuse."""
    entries = [called(f"e{number}", 100) for number in range(60)]
    sent: list[ChatMessage] = []
    reused = 0
    for steps in range(1, len(entries)):
        fitted = fit_run(run(entries=tuple(entries[:steps])), 4_000, len)
        native = [message for entry in fitted.block.entries for message in entry.native]
        assert tokens(fitted) <= 4_000
        reused += native[: len(sent)] == sent
        sent = native
    outcomes = [*fates(fitted).values()]

    assert outcomes.count("cleared") > 20
    assert reused > 50


def test_the_group_before_the_newest_is_cleared_too() -> None:
    """Only the newest keeps its results whatever they cost."""
    fitted = fit_run(run(entries=ENTRIES[1::2]), 57 + 76 - 1, len)

    assert fates(fitted) == {"b": "kept", "b1": "cleared", "d": "kept", "d1": "kept"}


def test_then_the_oldest_groups_go() -> None:
    """A result that clearing would not make smaller stays as it is."""
    fitted = fit_run(BLOCK, 76 + 27 + 7 + STUB, len)

    assert [entry.messages[0].id for entry in fitted.block.entries] == ["b", "c", "d"]
    assert fates(fitted) == {
        **dict.fromkeys(("a", "a1"), "dropped"),
        "b": "kept",
        "b1": "cleared",
        **dict.fromkeys(("c", "c1", "d", "d1"), "kept"),
    }
    assert fitted.decisions[0].smallest_budget == SIZE
    assert fitted.decisions[0].reason == "run_older"


@pytest.mark.parametrize("budget", [75, 1, 0, -10])
def test_the_newest_group_stays_as_it_is(budget: int) -> None:
    """Whatever it costs, and its results too."""
    fitted = fit_run(BLOCK, budget, len)

    assert fitted.block == replace(BLOCK, entries=BLOCK.entries[-1:])
    assert list(fates(fitted).values()) == ["dropped"] * 6 + ["kept"] * 2


def test_what_has_no_results_only_goes_whole() -> None:
    """A message of the human in a run is no result."""
    fitted = fit_run(run(entries=(said("u", 50), said("v", 30))), 79, len)

    assert fates(fitted) == {"u": "dropped", "v": "kept"}


def test_no_result_is_cleared_for_a_group_that_goes() -> None:
    """What a large old message leaves behind when it goes is room for results."""
    fitted = fit_run(run(entries=(said("u", 500), *ENTRIES)), SIZE, len)

    assert fitted.block == BLOCK
    assert fates(fitted)["u"] == "dropped"


def test_a_run_without_messages_is_one() -> None:
    """Where repair left none of them."""
    assert fit_run(run(entries=()), 10, len).block.entries == ()
