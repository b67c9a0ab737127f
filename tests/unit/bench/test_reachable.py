"""What bench.reachable counts."""

from bench.cache.__main__ import FIRST
from bench.reachable import measured
from bench.recall.cases import Case, Question
from tests.unit.bench.test_recall import said


async def test_figures_are_those_of_the_builds_and_recalls() -> None:
    """What a context leaves out is reached by calls, and everything by ids."""
    rows = [said(n, f"The colour of boat {n} is number {n * 7}") for n in range(FIRST + 12)]
    places = range(0, 60, 9)
    asked = [Question(f"What is the colour of boat {n}?", (f"m{n}",), "one") for n in places]
    figures = await measured([Case("c", rows, asked)], 150, None)

    assert 0 < figures["in_context"] <= figures["after_one_call"] <= figures["after_two_calls"] <= 1
    assert figures["by_ids"] == 1
    assert 3 < figures["handle_tokens_max"] <= 8
    prefix = figures["history_prefix"]
    assert {name: prefix[name] for name in prefix["without"]} == prefix["without"]
    assert (figures["questions"], figures["left_out"] > 100) == (7, True)
