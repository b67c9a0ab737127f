"""Tests for `service.conversation.strategies`."""

import pytest

from service.conversation.strategies import (
    PREFIX,
    SUMMARY_TOKENS,
    CompositeStrategy,
    SummarizationStrategy,
)
from service.errors import ContextError
from tests.unit.service.conversation.managing import Failing, Summariser, contents
from tests.unit.service.conversation.talk import Said, calls, result, said


def talk(count: int) -> list[Said]:
    """Return messages of user and model in turn, long enough to be summarised."""
    return [
        said("assistant" if number % 2 else "user", f"{number} ".ljust(200, "x"))
        for number in range(count)
    ]


async def test_all_but_the_newest_become_a_summary() -> None:
    """Ten messages and a window of three are four then, by one question to the model."""
    provider, rows = Summariser("Blue."), talk(10)
    left = await SummarizationStrategy(provider, 3, 1000).compact(rows)

    assert left == [said("user", f"{PREFIX}\nBlue."), *rows[-3:]]
    assert [message.content for message in provider.given[0]] == contents(rows[:-3])
    assert provider.most == [SUMMARY_TOKENS]


async def test_nothing_may_stay_but_the_summary() -> None:
    """In a window of none."""
    assert await SummarizationStrategy(Summariser("Blue."), 0, 0, prefix="[S]").compact(
        talk(10)
    ) == [said("user", "[S]\nBlue.")]


async def test_system_messages_stay_ahead() -> None:
    """All of them, wherever they stood."""
    system = [said("system", text) for text in "abc"]
    u, a, v = talk(3)
    left = await SummarizationStrategy(Summariser("Blue."), 1, 0).compact([*system, u, a, v])

    assert left == [*system, said("user", f"{PREFIX}\nBlue."), v]


async def test_what_is_new_enough_asks_nobody() -> None:
    """The source asks for a summary of nothing."""
    provider, rows = Summariser(), talk(3)

    assert await SummarizationStrategy(provider, 3, 0).compact(rows) == rows
    assert await SummarizationStrategy(provider, 3, 0).compact([]) == []
    assert provider.given == []


async def test_a_call_stays_with_its_results() -> None:
    """A window that would part them is a message shorter."""
    u, a, v = talk(3)
    rows = [u, a, calls("1"), result("1"), v]
    left = await SummarizationStrategy(Summariser("Blue."), 2, 0).compact(rows)

    assert left == [said("user", f"{PREFIX}\nBlue."), v]


async def test_a_summary_is_never_summarised() -> None:
    """Earlier ones stay before a later one."""
    provider = Summariser("First.")
    strategy = SummarizationStrategy(provider, 1, 0)
    once = await strategy.compact(talk(5))
    provider.text = "Second."
    twice = await strategy.compact([*once, *talk(4)])

    assert contents(twice[:2]) == [f"{PREFIX}\nFirst.", f"{PREFIX}\nSecond."]
    assert not any(message.content.startswith(PREFIX) for message in provider.given[1])


@pytest.mark.parametrize("text", ["", "x" * 5000])
async def test_a_summary_that_does_no_good_is_thrown_away(text: str) -> None:
    """Empty, or no shorter than what it stands for."""
    rows = talk(5)

    assert await SummarizationStrategy(Summariser(text), 1, 0).compact(rows) == rows


async def test_what_the_provider_raises_comes_through() -> None:
    """As the source's errors do."""
    with pytest.raises(ContextError):
        await SummarizationStrategy(Failing(), 1, 0).compact(talk(5))


def test_it_acts_above_its_limit() -> None:
    """And not at it."""
    strategy = SummarizationStrategy(Summariser(), 1, 1000)

    assert not strategy.should_compact([], 1000)
    assert strategy.should_compact([], 1001)


async def test_a_composite_waits_for_it() -> None:
    """Without waiting it leaves all as it is."""
    strategy = CompositeStrategy([SummarizationStrategy(Summariser("Blue."), 1, 0)], 0)
    rows = talk(5)

    assert len(await strategy.compact(rows)) == 2
    assert strategy.apply_context_strategy(rows) == rows
