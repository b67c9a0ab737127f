"""neuron-context's strategies."""

from collections.abc import Sequence
from typing import Any

import pytest

from formatters.model import Row
from formatters.native import CLEARED
from service.conversation.strategies import (
    CompositeStrategy,
    ContextStrategy,
    SlidingWindowStrategy,
    ToolResultClearingStrategy,
)
from tests.unit.service.conversation.talk import (
    EXAMPLE,
    Said,
    calls,
    names,
    parts,
    result,
    results,
    said,
    uses,
)


def contents(messages: Sequence[Row]) -> list[Any]:
    """Return what messages say."""
    return [message["content"] for message in messages]


#: A system message and three exchanges.
TALK = [
    said("system", "S"),
    *(said(role, f"{role} {n}") for n in range(3) for role in ("user", "assistant")),
]


async def test_a_window_keeps_system_messages_and_the_newest_others() -> None:
    """The document's example: seven messages, three are left."""
    left = await SlidingWindowStrategy(2, 500).compact(TALK)

    assert contents(left) == ["S", "user 2", "assistant 2"]


async def test_system_messages_go_to_the_front() -> None:
    """All of them stay, in their order; the window counts the others."""
    talk = [said("user" if n % 2 else "system", str(n)) for n in range(4)]

    assert contents(await SlidingWindowStrategy(2, 500).compact(talk)) == ["0", "2", "1", "3"]
    mixed = [said(role, name) for role, name in zip(ROLES, ORDER, strict=True)]
    assert contents(await SlidingWindowStrategy(2, 500).compact(mixed)) == ["s1", "s2", "u2", "a2"]


ROLES = ("system", "user", "system", "assistant", "user", "assistant")
ORDER = ("s1", "u1", "s2", "a1", "u2", "a2")


async def test_a_window_of_nothing_keeps_system_messages_alone() -> None:
    """The one case in which the user's newest message goes."""
    assert contents(await SlidingWindowStrategy(0, 500).compact(TALK)) == ["S"]


async def test_a_window_orphans_no_result() -> None:
    """neuron-context's would keep r2 without its call."""
    left = await SlidingWindowStrategy(3, 500).compact(EXAMPLE)

    assert names(left) == "u6 a7"


def test_a_window_less_than_nothing_is_refused() -> None:
    """So is a negative number of results."""
    with pytest.raises(ValueError, match="window_size"):
        SlidingWindowStrategy(-1, 500)
    with pytest.raises(ValueError, match="keep_recent_n"):
        ToolResultClearingStrategy(-1, 500)


def five_results() -> list[Said]:
    """Return five calls of blocks, each with its result."""
    return [each for n in range(5) for each in (uses(f"c{n}"), results(f"c{n}", content=f"r{n}"))]


@pytest.mark.parametrize(("keep", "cleared"), [(2, 3), (0, 5), (5, 0), (9, 0)])
async def test_old_results_are_cleared(keep: int, cleared: int) -> None:
    """The newest stay; the number of messages, their roles and all ids are what they were."""
    talk = five_results()

    left = await ToolResultClearingStrategy(keep, 500).compact(talk)

    expected = five_results()
    for n in range(cleared):
        expected[2 * n + 1]["content"][0]["content"] = CLEARED
    assert left == expected
    assert talk == five_results()


async def test_results_are_counted_and_not_messages() -> None:
    """Several stand in one message of blocks, beside a text that stays."""
    talk = [uses("c1", "c2"), results("c1", "c2", text="go on")]

    left = await ToolResultClearingStrategy(1, 500).compact(talk)

    (first,) = results("c1", content=CLEARED)["content"]
    assert left == [talk[0], said("user", [first, *talk[1]["content"][1:]])]


async def test_a_failed_result_stays_marked_as_failed() -> None:
    """neuron-context takes the mark away with the text."""
    talk = [uses("c1"), results("c1", content="boom")]
    talk[1]["content"][0]["is_error"] = True

    left = await ToolResultClearingStrategy(0, 500).compact(talk)

    assert left[1]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": CLEARED, "is_error": True}
    ]


async def test_results_are_cleared_in_every_shape() -> None:
    """A chat message, and the response of a function."""
    clear = ToolResultClearingStrategy(0, 500)
    asked = parts("model", {"functionCall": {"name": "f", "args": {}, "id": "1"}})
    answer = {"functionResponse": {"name": "f", "id": "1", "response": {"a": 1}}}

    assert (await clear.compact([calls("1"), result("1")]))[1] == result("1", CLEARED)
    cleared = {"functionResponse": {"name": "f", "id": "1", "response": {"result": CLEARED}}}
    assert (await clear.compact([asked, parts("user", answer)]))[1] == parts("user", cleared)


async def test_a_composite_stops_once_the_budget_is_met() -> None:
    """It asks before each strategy; the limits of these don't matter."""
    clear, window = ToolResultClearingStrategy(0, 10**9), SlidingWindowStrategy(1, 10**9)
    talk = [said("user", "go"), calls("1"), result("1", "long " * 100), said("user", "and")]

    for composite, left in (
        (CompositeStrategy([clear, window], 10**9), talk),
        (CompositeStrategy([clear, window], 40), [*talk[:2], result("1", CLEARED), talk[3]]),
        (CompositeStrategy([clear, window], 0), talk[3:]),
        (CompositeStrategy([], 0), talk),
    ):
        assert await composite.compact(talk) == left
        assert composite.apply_context_strategy(talk) == left


async def test_a_composite_takes_plain_objects() -> None:
    """They need nothing but ``compact``; applied without waiting, they are passed over."""

    class Last:
        """Keeps the last message."""

        async def compact(self, messages: Sequence[Row]) -> list[Row]:
            """Return it."""
            return list(messages[-1:])

    composite = CompositeStrategy([Last()], 0)

    assert await composite.compact(TALK) == TALK[-1:]
    assert composite.apply_context_strategy(TALK) == TALK


async def test_the_loop_of_the_document_works() -> None:
    """Estimate, ask, act: the result is no longer too much."""
    strategy: ContextStrategy = SlidingWindowStrategy(2, 20)
    before = strategy.token_estimate(TALK)
    left = await strategy.compact(TALK)

    assert strategy.should_compact(TALK, before)
    assert not strategy.should_compact(left, strategy.token_estimate(left))
