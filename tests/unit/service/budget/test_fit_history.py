from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from formatters.model import COUNT_MARK, Block, Entry, Message, Omission, Role, TrimPolicy
from formatters.native import CLEARED
from service.budget.decisions import FittedBlock
from service.budget.fit_history import MIN_CHARS, fit_history, placeholder_only
from service.budget.groups import Fit, Group, GroupDecision, Strategy
from service.budget.strategies.composite import Composite
from service.budget.strategies.middle_out import MiddleOut
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.windows import CountSummary, SlidingWindow, SmartWindow, WindowSize
from service.errors import ConfigError
from tests.unit.service.budget.natives import called, history, said

#: With `len` for a count, what a block of one-digit rows costs next to its entries.
REST = len("[M count=1]\n") + 4


def turn(name: str, size: int, *, shortens: bool = True, cut: bool = False) -> Entry:
    """Return an entry of n characters, which can be cut to any length from 5 on."""
    return Entry(
        text=f"[{name}]".ljust(size, name),
        messages=(Message(id=name, role=Role.HUMAN, content=""),),
        rows=1,
        reasons={name: "message_chars"} if cut else {},
        shorten=(
            lambda chars: replace(turn(name, min(size, max(chars, 5))), reasons={name: "shortened"})
        )
        if shortens
        else None,
        longest=size,
    )


def memory(*entries: Entry, omissions: tuple[Omission, ...] = ()) -> Block:
    """Return a block of history."""
    return Block(
        tag="M",
        header=f"[M {COUNT_MARK}]\n",
        entries=entries,
        placeholder="(nothing)",
        placeholder_when_cut="(none fits)",
        gives_way=TrimPolicy.BY_STRATEGY,
        additive=True,
        omissions=omissions,
    )


def fates(fitted: FittedBlock) -> list[tuple[str, str, str, int | None]]:
    """Return id, outcome, reason and tokens of every decision on one message."""
    return [
        (each.message_ids[0], each.outcome, each.reason, each.tokens) for each in fitted.decisions
    ]


@dataclass(frozen=True)
class Keep(Strategy):
    """Keeps the groups of these indices."""

    indices: tuple[int, ...]
    name: str = "keep"
    reads_all: bool = True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the chosen groups that are still there."""
        return Fit(
            kept=tuple(group for group in groups if group.index in self.indices),
            decisions={
                group.index: GroupDecision("middle", score=group.index / 2) for group in groups
            },
        )


@pytest.mark.parametrize("budget", [REST + 22, REST + 100, None])
def test_what_fits_is_kept(budget: int | None) -> None:
    """Where everything fits, to the token, a strategy that counts tokens keeps it."""
    block = memory(turn("a", 10), turn("b", 11))

    fitted = fit_history(block, OldestFirst(), budget, len)

    assert fitted.block == block
    assert fates(fitted) == [("a", "kept", "fits", 11), ("b", "kept", "fits", 12)]
    assert not fitted.insufficient


def test_one_token_less() -> None:
    """Where one token is missing, the strategy decides."""
    fitted = fit_history(memory(turn("a", 10), turn("b", 11)), OldestFirst(), REST + 21, len)

    assert fitted.block.text == "[M count=1]\n[b]bbbbbbbb"
    assert fates(fitted) == [("a", "dropped", "older", 11), ("b", "kept", "fits", 12)]
    assert not fitted.insufficient


def test_entries_cut_to_the_limit_say_so() -> None:
    """A turn that was cut to the limit of characters is truncated, whatever the budget."""
    fitted = fit_history(memory(turn("a", 10, cut=True)), OldestFirst(), None, len)

    assert fates(fitted) == [("a", "truncated", "message_chars", 11)]


@pytest.mark.parametrize(("size", "room"), [(500, 100), (500, 20), (101, 100), (500, 499)])
def test_a_turn_too_large_is_shortened(size: int, room: int) -> None:
    """A newest turn larger than the block fills it to the token."""
    block = memory(turn("a", 10), turn("b", size))

    fitted = fit_history(block, OldestFirst(), REST + room, len)

    assert len(fitted.block.text) + 4 == REST + room
    assert fates(fitted) == [("a", "dropped", "older", 11), ("b", "truncated", "shortened", room)]


def test_a_turn_that_is_not_chosen_is_not_shortened() -> None:
    """A turn too large for the block does not push out the newer ones."""
    block = memory(turn("a", 10), turn("b", 500), turn("c", 10))

    fitted = fit_history(block, OldestFirst(), REST + 50, len)

    assert fates(fitted) == [
        ("a", "dropped", "older", 11),
        ("b", "dropped", "older", 501),
        ("c", "kept", "fits", 11),
    ]


@pytest.mark.parametrize("shortens", [True, False])
def test_a_turn_that_cannot_fit_makes_way(*, shortens: bool) -> None:
    """Where no shortening helps the newest turn, older ones are shown in its place."""
    newest = turn("c", 500, shortens=shortens)
    stubborn = replace(newest, shorten=(lambda _: turn("c", 400)) if shortens else None)
    block = memory(turn("a", 500, shortens=shortens), turn("b", 20), stubborn)

    fitted = fit_history(block, OldestFirst(), REST + 50, len)

    assert fitted.block.text == "[M count=1]\n" + turn("b", 20).text
    assert fates(fitted) == [
        ("a", "dropped", "older" if shortens else "too_large", 501),
        ("b", "kept", "fits", 21),
        ("c", "dropped", "too_large", 501),
    ]


@pytest.mark.parametrize("room", [-20, -1, 0, 3, MIN_CHARS - 1])
def test_where_none_fits(room: int) -> None:
    """Where no turn fits, not even shortened, the placeholder says so."""
    block = memory(turn("a", 500), turn("b", 500))

    fitted = fit_history(block, OldestFirst(), REST + room, len)

    assert fitted.block.text == "[M count=0]\n(none fits)"
    assert fates(fitted) == [("a", "dropped", "too_large", 501), ("b", "dropped", "too_large", 501)]


def test_the_hard_cut() -> None:
    """What a strategy leaves over the budget loses its oldest turns."""
    block = memory(turn("a", 30), turn("b", 30), turn("c", 30))

    fitted = fit_history(block, MiddleOut(), REST + 50, len)

    assert fitted.insufficient
    assert fates(fitted) == [
        ("a", "dropped", "insufficient", 31),
        ("b", "dropped", "middle", 31),
        ("c", "kept", "fits", 31),
    ]


def test_a_clamped_first_turn_yields() -> None:
    """A first turn that alone fills the block does not push the newest out."""
    block = memory(turn("a", 500), turn("b", 30), turn("c", 30))

    fitted = fit_history(block, MiddleOut(), REST + 50, len)

    assert fitted.insufficient
    assert [outcome for _, outcome, _, _ in fates(fitted)] == ["dropped", "dropped", "kept"]


def test_scores_are_passed_on() -> None:
    """A strategy's score is with the decision, kept or not."""
    fitted = fit_history(memory(turn("a", 30), turn("b", 30)), Keep((0,)), REST + 40, len)

    assert [(each.outcome, each.score) for each in fitted.decisions] == [
        ("kept", 0.0),
        ("dropped", 0.5),
    ]


def test_the_hard_cut_leaves_scores_as_they_are() -> None:
    """It speaks only of what it takes."""
    fitted = fit_history(memory(turn("a", 30), turn("b", 30)), Keep((0, 1)), REST + 40, len)

    assert [(each.reason, each.score) for each in fitted.decisions] == [
        ("insufficient", None),
        ("fits", 0.5),
    ]


def test_a_strategy_that_gives_no_reason() -> None:
    """Nothing else is said of a group that goes without a word."""

    class Mute(Keep):
        def fit(self, groups: Sequence[Group], budget: int) -> Fit:
            return replace(super().fit(groups, budget), decisions={})

    fitted = fit_history(memory(turn("a", 30), turn("b", 30)), Mute((1,)), REST + 40, len)

    assert fates(fitted)[0] == ("a", "dropped", "not_chosen", 31)


@dataclass(frozen=True)
class Returning(Strategy):
    """A strategy of another package, which returns what it likes."""

    make: Callable[[Sequence[Group]], object]
    name: str = "returning"
    reads_all: bool = True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return something."""
        return self.make(groups)  # type: ignore[return-value] # as untyped code may


def test_what_a_strategy_keeps_is_sent_in_order_and_once() -> None:
    """Whatever order and number the strategy gives it."""
    strategy = Returning(lambda groups: Fit(kept=(*reversed(groups), groups[0])))
    fitted = fit_history(memory(turn("a", 30), turn("b", 30)), strategy, REST + 100, len)

    assert fates(fitted) == [("a", "kept", "fits", 31), ("b", "kept", "fits", 31)]
    assert fitted.block.text.index("[a]") < fitted.block.text.index("[b]")


@pytest.mark.parametrize("wrap", [lambda own: own, lambda own: Composite(strategies=(own,))])
def test_a_strategy_that_returns_no_fit_is_named(wrap: Callable[[Strategy], Strategy]) -> None:
    """Also if it is one of several."""
    strategy = wrap(Returning(list))
    with pytest.raises(ConfigError, match=r"^the strategy returning has to return .+, not list$"):
        fit_history(memory(turn("a", 30), turn("b", 30)), strategy, REST + 40, len)


def test_the_heading_is_priced_at_its_dearest() -> None:
    """A number that gets shorter leaves a token unused, and never one too many used."""
    block = memory(*(turn("a", 10) for _ in range(10)))

    fitted = fit_history(block, OldestFirst(), REST + 10 * 11 - 1, len)

    assert len(fitted.block.entries) == 9
    assert len(fitted.block.text) + 4 <= REST + 10 * 11 - 1


def test_omissions_become_decisions() -> None:
    """What the block left out by itself is dropped by its limit, and else filtered."""
    omissions = (
        Omission(message_ids=("x", "y"), reason="memory_limit"),
        Omission(message_ids=("z",), reason="role"),
    )

    fitted = fit_history(memory(turn("a", 10), omissions=omissions), OldestFirst(), None, len)

    assert [(each.message_ids, each.outcome, each.reason) for each in fitted.decisions] == [
        (("x", "y"), "dropped", "memory_limit"),
        (("z",), "filtered", "role"),
        (("a",), "kept", "fits"),
    ]


@pytest.mark.parametrize("budget", [None, 0, 100])
def test_no_history(budget: int | None) -> None:
    """A block without history keeps the placeholder that it has."""
    fitted = fit_history(memory(), OldestFirst(), budget, len)

    assert fitted.block == memory()
    assert fitted.decisions == ()


@pytest.mark.parametrize("room", [50, 61, 90, 122])
@pytest.mark.parametrize(
    "strategy", [OldestFirst(), MiddleOut(), WindowSize(), SlidingWindow(), SmartWindow()]
)
def test_the_least_budget_that_keeps_a_turn(strategy: Strategy, room: int) -> None:
    """With n tokens for the block it is kept whole, with one less it is not."""
    block = memory(*(turn(name, 30) for name in "abcd"))
    fitted = fit_history(block, strategy, REST + room, len)
    dropped = [each for each in fitted.decisions if each.outcome == "dropped"]

    for each in dropped:
        assert each.smallest_budget
        least = each.smallest_budget
        kept, missed = (fit_history(block, strategy, n, len) for n in (least, least - 1))
        assert (each.message_ids[0], "kept") in [fate[:2] for fate in fates(kept)]
        assert (each.message_ids[0], "kept") not in [fate[:2] for fate in fates(missed)]
    assert dropped


def test_no_least_budget_where_none_is_defined() -> None:
    """Of a strategy that gives no reason."""
    fitted = fit_history(memory(turn("a", 30), turn("b", 30)), Keep((1,)), REST + 40, len)

    assert fitted.decisions[0].smallest_budget is None


# --- native messages -------------------------------------------------------------------------


def test_native_groups_cost_their_messages() -> None:
    """Nothing besides: no heading, and no message of its own."""
    block = history(entries=(said("a", 30), called("b", 20), said("c", 10)))

    whole = fit_history(block, OldestFirst(), 67, len)
    less = fit_history(block, OldestFirst(), 66, len)

    assert whole.block == block
    assert not whole.block.moves
    assert [entry.messages[0].id for entry in less.block.entries] == ["b", "c"]
    assert less.block.moves


def test_native_history_may_go_whole() -> None:
    """It has no placeholder."""
    fitted = fit_history(history(entries=(said("a", 30),)), OldestFirst(), 3, len)

    assert fitted.block.entries == ()
    assert fates(fitted) == [("a", "dropped", "too_large", 30)]


def test_a_native_group_too_large_is_shortened() -> None:
    """Its messages are cut, each to the same number of characters."""
    fitted = fit_history(history(entries=(called("a", 500, 60),)), OldestFirst(), 100, len)
    (entry,) = fitted.block.entries

    assert [len(message.content) for message in entry.native] == [0, 42, 42]
    assert [each.reason for each in fitted.decisions] == ["fits", "shortened"]


def test_cleared_results_have_decisions_of_their_own() -> None:
    """Their calls are kept."""
    block = history(entries=(called("a", 100, 60), called("b", 30)))

    fitted = fit_history(block, ToolResultClearing(keep_recent_n=1), 130, len)

    assert [(each.message_ids, each.outcome, each.reason) for each in fitted.decisions] == [
        (("a",), "kept", "fits"),
        (("a1", "a2"), "cleared", "result_cleared"),
        (("b", "b1"), "kept", "fits"),
    ]
    assert [message.content for message in fitted.block.entries[0].native[1:]] == [CLEARED] * 2
    assert fitted.block.entries[0].results == {}


def test_a_group_larger_than_the_room_is_cleared_before_it_is_shortened() -> None:
    """What remains of it once its results are gone is its true size."""
    block = history(entries=(called("a", 500, 60), called("b", 30)))

    cleared = fit_history(block, ToolResultClearing(keep_recent_n=1), 120, len)
    tight = fit_history(block, ToolResultClearing(keep_recent_n=0), 45, len)

    assert {each.outcome for each in cleared.decisions} == {"kept", "cleared"}
    assert [entry.messages[0].id for entry in tight.block.entries] == ["b"]
    assert tight.insufficient


def test_partly_cleared_and_still_too_large() -> None:
    """A result that stays may have to be cut."""
    block = history(entries=(called("a", 500, 300),))

    fitted = fit_history(block, ToolResultClearing(keep_recent_n=1), 150, len)
    (entry,) = fitted.block.entries

    assert entry.native[1].content == CLEARED
    assert 0 < len(entry.native[2].content) < 296
    assert [each.outcome for each in fitted.decisions] == ["kept", "cleared", "truncated"]


def test_repaired_rows_say_so() -> None:
    """A row that was mended is present, for that reason."""
    entry = replace(called("a", 30), reasons={"a": "result_missing"})

    fitted = fit_history(history(entries=(entry,)), OldestFirst(), None, len)

    assert [(each.message_ids, each.outcome, each.reason) for each in fitted.decisions] == [
        (("a",), "repaired", "result_missing"),
        (("a1",), "kept", "fits"),
    ]


def test_a_first_turn_beyond_the_budget_costs_the_others_nothing() -> None:
    """The newest ones fill the room that it would not fit into."""
    block = history(entries=(said("u", 500), *(said(name, 60) for name in "abcd")))

    fitted = fit_history(block, MiddleOut(), 180, len)

    assert [entry.messages[0].id for entry in fitted.block.entries] == ["b", "c", "d"]


def test_what_was_mended_and_shortened_is_shortened() -> None:
    """The budget's reason takes precedence over that of the repair."""
    entry = replace(said("u", 300), reasons={"u": "result_missing"})

    fitted = fit_history(history(entries=(entry,)), OldestFirst(), 100, len)

    assert [(each.outcome, each.reason) for each in fitted.decisions] == [
        ("truncated", "shortened")
    ]


# --- summaries -------------------------------------------------------------------------------

SENTENCE = "Previous 3 turns: 3 user messages, 0 model responses, 0 tool calls"


def test_a_summary_is_the_first_entry_of_the_block() -> None:
    """It is no row, and the rows that it covers are summarised."""
    block = memory(*(turn(name, 60) for name in "abcd"))

    fitted = fit_history(block, CountSummary(max_items=1), REST + 200, len)

    assert fitted.block.text.startswith(f"[M count=1]\n[CONTEXT SUMMARY]\n{SENTENCE}\n[d]")
    assert [each.outcome for each in fitted.decisions] == ["summarized"] * 3 + ["kept"]
    assert [each.reason for each in fitted.decisions] == ["summarized"] * 3 + ["fits"]
    assert fitted.blocks == (fitted.block,)


def test_a_summary_says_that_it_does_not_count_all() -> None:
    """Where older rows are beyond a limit, or were not read."""
    block = memory(*(turn(name, 60) for name in "abcd"))

    fitted = fit_history(replace(block, moves=True), CountSummary(max_items=1), REST + 200, len)

    assert f"\n{SENTENCE}; older messages are not counted\n[d]" in fitted.block.text


def test_a_summary_of_native_history_is_a_message_before_it() -> None:
    """It counts as history does."""
    block = history(entries=tuple(said(name, 60) for name in "abcd"))

    fitted = fit_history(block, CountSummary(max_items=1), 160, len)
    summary, left = fitted.blocks

    assert summary.text == f"[CONTEXT SUMMARY]\n{SENTENCE}"
    assert [entry.messages[0].id for entry in left.entries] == ["d"]
    assert len(summary.text) + 4 + 60 <= 160


def test_what_the_summary_takes_is_cut_too() -> None:
    """What then goes is counted in it."""
    block = memory(*(turn(name, 60) for name in "abcd"))

    fitted = fit_history(block, CountSummary(max_items=3), REST + 150, len)

    assert SENTENCE in fitted.block.text
    assert len(fitted.block.text) + 4 <= REST + 150
    assert fitted.insufficient


def test_a_summary_makes_way_for_the_newest_turn() -> None:
    """One that leaves no room for any turn is left out."""
    block = memory(*(turn(name, 60) for name in "abcd"))

    fitted = fit_history(block, CountSummary(max_items=1), REST + 70, len)

    assert "SUMMARY" not in fitted.block.text
    assert [each.outcome for each in fitted.decisions] == ["dropped"] * 3 + ["kept"]


@pytest.mark.parametrize("block", [
    memory(*(turn(name, 60) for name in "abc")),
    history(entries=tuple(said(name, 60) for name in "abc")),
])  # fmt: skip
def test_a_summary_may_stand_alone(block: Block) -> None:
    """Where the strategy keeps no turn it says at least how many there were, if that fits."""
    fitted = fit_history(block, CountSummary(max_items=0), REST + 110, len)
    nothing = fit_history(block, CountSummary(max_items=0), 80, len)

    assert SENTENCE in fitted.blocks[0].text
    assert [each.outcome for each in fitted.decisions] == ["summarized"] * 3
    assert [each.outcome for each in nothing.decisions] == ["dropped"] * 3


def test_a_summary_that_is_alone_may_fill_the_room() -> None:
    """To the token."""
    block = memory(*(turn(name, 60) for name in "abc"))
    room = REST + len(f"[CONTEXT SUMMARY]\n{SENTENCE}\n")
    fitted, less = (fit_history(block, CountSummary(max_items=0), n, len) for n in (room, room - 1))

    assert {each.outcome for each in fitted.decisions} == {"summarized"}
    assert {each.outcome for each in less.decisions} == {"dropped"}


def test_the_smallest_form() -> None:
    """The smallest form says that there is history, where there is."""
    assert placeholder_only(memory(turn("a", 10))).text == "[M count=0]\n(none fits)"
    assert placeholder_only(memory()).text == "[M count=0]\n(nothing)"


def test_two_turns_and_no_middle() -> None:
    """Of two turns middle_out keeps both, and the hard cut the newer."""
    block = memory(turn("a", 30), turn("b", 30))

    fitted = fit_history(block, MiddleOut(), REST + 40, len)

    assert fitted.decisions[0].smallest_budget == REST + 61
