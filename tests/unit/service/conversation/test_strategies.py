"""The strategies of neuron-context and SPADE_LLM."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from formatters.model import Row
from formatters.native import CLEARED
from service.budget.estimates import HeuristicTokenCounter
from service.conversation.strategies import (
    PREFIX,
    SUMMARY_TOKENS,
    CompositeStrategy,
    ContextStrategy,
    NoContextManagement,
    SlidingWindowStrategy,
    SmartWindowSizeContext,
    SummarizationStrategy,
    ToolResultClearingStrategy,
    WindowSizeContext,
)
from service.errors import ContextError
from tests.unit.service.conversation.managing import Failing, Summariser, contents
from tests.unit.service.conversation.talk import (
    EXAMPLE,
    Said,
    calls,
    function_call,
    names,
    parts,
    response,
    result,
    results,
    said,
    uses,
)


def test_the_base_cannot_be_made() -> None:
    """A strategy has to say how it is applied."""
    with pytest.raises(TypeError, match="apply_context_strategy"):
        ContextStrategy()  # type: ignore[abstract]


class Nothing(ContextStrategy):
    """A strategy of a caller's own."""

    name = "nothing"

    def apply_context_strategy(
        self, messages: object, system_prompt: str | None = None
    ) -> list[Row]:
        """Keep nothing."""
        return []


async def test_a_strategy_of_ones_own_needs_one_method() -> None:
    """The others follow from it; with no limit it never asks to act."""
    own = Nothing()

    assert await own.compact([said("user", "hi")]) == []
    assert not own.should_compact([], 1_000_000)
    assert own.token_estimate([said("user", "a" * 40)]) == 14
    assert own.get_stats(3)["messages_in_context"] == 3


@pytest.mark.parametrize(
    "strategy", [SlidingWindowStrategy(2, 1_000), ToolResultClearingStrategy(2, 1_000)]
)
def test_only_more_than_the_limit_is_too_much(strategy: ContextStrategy) -> None:
    """A size equal to the limit is not; the messages aren't read."""
    assert not strategy.should_compact([], 1_000)
    assert strategy.should_compact([], 1_001)


def test_windows_that_are_always_applied_never_ask() -> None:
    """SPADE_LLM's have no limit of tokens."""
    assert not WindowSizeContext(1).should_compact([], 1_000_000)


def test_messages_are_counted_by_what_they_say_in_any_shape() -> None:
    """4 a message, its text, each call's name and arguments, each result's content."""
    strategy = SlidingWindowStrategy(2, 1_000)
    # a name of 6 bytes are 2 tokens, arguments of 7 are 2, "found" 2 and {"found":1} 3
    assert strategy.token_estimate([uses("c1", "c2")]) == 4 + 2 * 4
    assert strategy.token_estimate([calls("c1", "c2")]) == 4 + 2 * 4
    assert strategy.token_estimate([parts("model", "four", function_call())]) == 4 + 1 + 4
    assert strategy.token_estimate([results("c1"), result("c1")]) == 2 * (4 + 2)
    assert strategy.token_estimate([parts("user", response())]) == 4 + 3
    assert strategy.token_estimate([]) == 0


def test_a_counter_of_ones_own_counts() -> None:
    """Such as one of another ratio."""
    half = HeuristicTokenCounter.with_ratio(2)

    assert SlidingWindowStrategy(2, 9, half).token_estimate([said("user", "a" * 40)]) == 24


def kept(strategy: ContextStrategy) -> str:
    """Return the names of what a strategy keeps of the example."""
    return names(strategy.apply_context_strategy(EXAMPLE))


@pytest.mark.parametrize(
    ("most", "window", "smart", "initial", "tools", "both"),
    [
        (1, "u6", "u6", None, "u6", None),
        (2, "u6 a7", "u6 a7", "u0 u6", "u6 a7", "u0 u6"),
        (3, "u6 a7", "u3 u6 a7", "u0 u6 a7", "a4 r2 u6", "u0 u6 a7"),
        (4, "a4 r2 u6 a7", "a4 r2 u6 a7", "u0 u3 u6 a7", "a4 r2 u6 a7", "u0 a4 r2 u6"),
        (
            5,
            "u3 a4 r2 u6 a7",
            "u3 a4 r2 u6 a7",
            "u0 a4 r2 u6 a7",
            "a1 r1 a4 r2 u6",
            "u0 a4 r2 u6 a7",
        ),
        (
            6,
            "u3 a4 r2 u6 a7",
            "u0 u3 a4 r2 u6 a7",
            "u0 u3 a4 r2 u6 a7",
            "a1 r1 a4 r2 u6 a7",
            "u0 a1 r1 a4 r2 u6",
        ),
        (
            7,
            "a1 r1 u3 a4 r2 u6 a7",
            "a1 r1 u3 a4 r2 u6 a7",
            "u0 u3 a4 r2 u6 a7",
            "a1 r1 u3 a4 r2 u6 a7",
            "u0 a1 r1 a4 r2 u6 a7",
        ),
    ],
)
def test_the_selection_matrix(
    most: int, window: str, smart: str, initial: str | None, tools: str, both: str | None
) -> None:
    """SPADE_LLM's, but that no call loses its result and the user's newest message stays."""
    assert kept(WindowSizeContext(most)) == window
    assert kept(SmartWindowSizeContext(most)) == smart
    assert kept(SmartWindowSizeContext(most, prioritize_tools=True)) == tools
    if initial and both:
        assert kept(SmartWindowSizeContext(most, 1)) == initial
        assert kept(SmartWindowSizeContext(most, 1, prioritize_tools=True)) == both


@pytest.mark.parametrize(
    "strategy", [NoContextManagement(), WindowSizeContext(), SmartWindowSizeContext(8)]
)
def test_what_is_within_the_limit_stays_as_it_is(strategy: ContextStrategy) -> None:
    """The same messages, in a list of the caller's own."""
    assert strategy.apply_context_strategy(EXAMPLE, "You are helpful") == EXAMPLE
    assert strategy.apply_context_strategy(EXAMPLE) is not EXAMPLE


def test_first_messages_that_are_a_call_without_room_for_its_result_are_not_preserved() -> None:
    """Of u0, a call and its result, 2 initial messages are u0 alone; SPADE_LLM splits the pair."""
    history = [said("user", "u0"), calls("1"), result("1"), said("user", "u3")]
    history += [said("assistant", "a4"), said("user", "u5")]

    left = SmartWindowSizeContext(4, preserve_initial=2).apply_context_strategy(history)

    assert [message["content"] for message in left] == ["u0", "u3", "a4", "u5"]


def test_a_group_that_does_not_go_in_whole_is_passed_over() -> None:
    """Three calls and their results need four places of three."""
    history = [*(said("user", f"u{n}") for n in range(3)), calls("1", "2", "3")]
    history += [result("1"), result("2"), result("3")]

    assert SmartWindowSizeContext(3).apply_context_strategy(history) == history[:3]


@pytest.mark.parametrize("strategy", [WindowSizeContext(2), SmartWindowSizeContext(2)])
def test_system_messages_stay_and_are_not_counted(strategy: ContextStrategy) -> None:
    """They stay at their position."""
    history = [said("system", "s"), *EXAMPLE[:6], said("developer", "d"), *EXAMPLE[6:]]

    left = strategy.apply_context_strategy(history)

    assert [message["content"] for message in left] == ["s", "d", "u6", "a7"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: WindowSizeContext(0),
        lambda: SmartWindowSizeContext(0),
        lambda: SmartWindowSizeContext(preserve_initial=-1),
        lambda: SmartWindowSizeContext(3, 3),
    ],
)
def test_sizes_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    """When the strategy is made, as in SPADE_LLM."""
    with pytest.raises(ValueError, match=r"max_messages|preserve_initial"):
        wrong()


def test_the_defaults_are_the_sources() -> None:
    """20 messages, none preserved, no tools before others."""
    long = [said("user" if n % 2 else "assistant", str(n)) for n in range(30)]

    assert WindowSizeContext().apply_context_strategy(long) == long[10:]
    assert SmartWindowSizeContext().apply_context_strategy(long) == long[10:]


def test_statistics_come_from_a_number_of_messages() -> None:
    """How many stay at most and go at least, with the settings."""
    assert NoContextManagement().get_stats(50) == {
        "strategy": "none",
        "total_messages": 50,
        "messages_in_context": 50,
        "messages_dropped": 0,
    }
    assert WindowSizeContext(25).get_stats(50) == {
        "strategy": "window_size",
        "max_messages": 25,
        "total_messages": 50,
        "messages_in_context": 25,
        "messages_dropped": 25,
    }
    smart = SmartWindowSizeContext(25, 3, prioritize_tools=True)
    assert (smart.max_messages, smart.preserve_initial, smart.prioritize_tools) == (25, 3, True)
    assert smart.get_stats(10) == {
        "strategy": "smart_window_size",
        "max_messages": 25,
        "preserve_initial": 3,
        "prioritize_tools": True,
        "total_messages": 10,
        "messages_in_context": 10,
        "messages_dropped": 0,
    }


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
    """Several are in one message of blocks, next to a text that stays."""
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
    summary = await SummarizationStrategy(Summariser("Blue."), 0, 0).compact(talk(10))

    assert summary == [said("user", f"{PREFIX}\nBlue.")]


async def test_system_messages_stay_ahead() -> None:
    """All of them, in any position."""
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


@pytest.mark.parametrize("text", ["", None, "x" * 5000])
async def test_a_summary_that_does_no_good_is_thrown_away(text: Any) -> None:
    """Empty, or no shorter than what it replaces."""
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
