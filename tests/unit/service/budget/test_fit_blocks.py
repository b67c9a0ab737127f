from collections.abc import Sequence
from dataclasses import replace

import pytest

from formatters.model import COUNT_MARK, OLDER, Block, Entry, Message, Omission, Role, TrimPolicy
from service.budget.counting import MAX_CHARS_PER_TOKEN, block_tokens
from service.budget.fit_blocks import Budget, Fitted, fit_blocks
from service.budget.groups import Strategy
from service.budget.strategies.none import KeepAll
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import Relevance
from service.budget.strategies.windows import SlidingWindow, WindowSize
from service.errors import BudgetExceededError
from tests.unit.service.budget.natives import called, run, said

# `len` counts, so a block costs the characters of its text and 4

FIXED = Block(tag="FIXED", entries=(Entry(text="f" * 96),))
SMALL_TOOL = Entry(text="### s\nfine\n", shorter=("### s",))
LARGE_TOOL = Entry(text="### l\nfine\n- q: described\n", shorter=("### l\nfine\n- q\n", "### l"))
TOOLS = Block(
    tag="TOOLS",
    header="[TOOLS]\n",
    entries=(LARGE_TOOL, SMALL_TOOL, LARGE_TOOL),
    gives_way=TrimPolicy.BY_DETAIL,
    additive=True,
)
MOOD = Block(tag="MOOD", entries=(Entry(text="m" * 46),), gives_way=TrimPolicy.WHOLE)
PLAN = Block(tag="PLAN", entries=(Entry(text="p" * 46),), gives_way=TrimPolicy.WHOLE)
MEMORY = Block(
    tag="MEMORY",
    header=f"[MEMORY {COUNT_MARK}]\n",
    entries=tuple(
        Entry(text=f"[{n}]".ljust(9, "-"), rows=1,
              messages=(Message(id=f"m{n}", role=Role.HUMAN, content=""),))
        for n in range(3)
    ),
    placeholder_when_cut="(none)",
    gives_way=TrimPolicy.BY_STRATEGY,
    additive=True,
)  # fmt: skip


RUN = run(entries=(called("a", 90), said("u", 13), called("b", 40)))


def reported(chars: int) -> Entry:
    """Return a profile of at most n characters, of fifty."""
    assert chars >= 0
    text = "t" * 50 if chars >= 50 else f"{'t' * chars}\n(shortened)"
    return Entry(text=text, shorten=reported, longest=50)


PROFILE = Block(tag="PROFILE", entries=(reported(50),), gives_way=TrimPolicy.BY_TAIL)

BLOCKS = (FIXED, TOOLS, MEMORY, PROFILE, MOOD, PLAN)
TOTAL = sum(len(block.text) + 4 for block in BLOCKS)


def fit(
    available: int,
    blocks: Sequence[Block] = BLOCKS,
    *,
    strategy: Strategy | None = None,
    tools: int = 0,
    memory: int | None = None,
) -> Fitted:
    """Fit blocks into n tokens."""
    budget = Budget(
        available=available, tools=tools, strategy=strategy or OldestFirst(), memory=memory
    )
    return fit_blocks(blocks, budget, len)


def texts(fitted: Fitted) -> dict[str, str]:
    """Return the text of each block."""
    return {block.tag: block.text for block in fitted.blocks}


def least(*tags: str) -> int:
    """Return what the blocks cost, those with these tags in their smallest form."""
    small = {
        "TOOLS": len("[TOOLS]\n### l\n### s\n### l") + 4,
        "MEMORY": len("[MEMORY count=0]\n(none)") + 4,
        "PROFILE": len("(shortened)") + 5,
        "MOOD": 0,
        "PLAN": 0,
    }
    return sum(small[block.tag] if block.tag in tags else len(block.text) + 4 for block in BLOCKS)


@pytest.mark.parametrize("tools", [0, 70])
def test_all_that_fits_stays(tools: int) -> None:
    """Where everything fits, to the token, nothing gives way."""
    fitted = fit(TOTAL + tools, tools=tools)

    assert fitted.blocks == BLOCKS
    assert fitted.reduced_blocks == {}
    assert fitted.tools == tools
    assert sum(fitted.tokens.values()) == TOTAL
    assert list(fitted.tokens) == ["FIXED", "TOOLS", "MEMORY", "PROFILE", "MOOD", "PLAN"]


@pytest.mark.parametrize(
    ("available", "kept"),
    [(TOTAL, 3), (TOTAL - 1, 2), (TOTAL - 10, 2), (TOTAL - 11, 1), (least("MEMORY"), 0)],
)
def test_history_gives_way_first(available: int, kept: int) -> None:
    """The oldest turns go first."""
    fitted = fit(available)

    assert texts(fitted) == {**texts(fit(TOTAL)), "MEMORY": texts(fitted)["MEMORY"]}
    assert f"[MEMORY count={kept}]" in texts(fitted)["MEMORY"]
    assert fitted.reduced_blocks == {}
    assert [each.outcome for each in fitted.decisions] == ["dropped"] * (3 - kept) + ["kept"] * kept


def test_history_smaller_than_its_placeholder() -> None:
    """History that takes less than the word of its absence stays, and nothing gives way for it."""
    brief = replace(MEMORY, entries=MEMORY.entries[:1], placeholder_when_cut="(none of it fits)")
    whole = len(brief.text) + 4 + 50

    assert fit(whole, [brief, MOOD]).blocks == (brief, MOOD)
    assert fit(whole - 1, [brief, MOOD]).blocks == (brief,)
    with pytest.raises(BudgetExceededError, match="MEMORY 30"):
        fit(29, [brief])


def test_a_strategy_that_keeps_none_of_a_brief_history() -> None:
    """What protects it is the word of its absence, however little history itself would take."""
    brief = replace(MEMORY, entries=MEMORY.entries[:1], placeholder_when_cut="(none of it fits)")
    absent = len("[MEMORY count=0]\n(none of it fits)") + 4
    strategy = SlidingWindow(window_size=0)

    fitted = fit(absent, [brief], strategy=strategy)
    assert texts(fitted) == {"MEMORY": "[MEMORY count=0]\n(none of it fits)"}
    assert fitted.tokens == {"MEMORY": absent}
    with pytest.raises(BudgetExceededError, match=f"MEMORY {absent}"):
        fit(absent - 1, [brief], strategy=strategy)


@pytest.mark.parametrize(
    ("available", "gone"),
    [
        (least("MEMORY") - 1, ["PLAN"]),
        (least("MEMORY", "PLAN"), ["PLAN"]),
        (least("MEMORY", "PLAN") - 1, ["PLAN", "MOOD"]),
        (least("MEMORY", "PLAN", "MOOD"), ["PLAN", "MOOD"]),
    ],
)
def test_then_blocks_of_the_request(available: int, gone: list[str]) -> None:
    """Then the request's blocks go whole, the last one first."""
    fitted = fit(available)

    assert fitted.reduced_blocks == dict.fromkeys(gone, "block_dropped")
    assert set(texts(fitted)) == {block.tag for block in BLOCKS} - set(gone)


#: The room of the last resort: all but capabilities and profile in their smallest form.
ROOM = least("MEMORY", "PLAN", "MOOD")


@pytest.mark.parametrize(
    ("missing", "tools"),
    [
        (1, [LARGE_TOOL.text, SMALL_TOOL.text, LARGE_TOOL.shorter[0]]),
        (11, [LARGE_TOOL.text, SMALL_TOOL.text, LARGE_TOOL.shorter[0]]),
        (12, [LARGE_TOOL.shorter[0], SMALL_TOOL.text, LARGE_TOOL.shorter[0]]),
        (22, [LARGE_TOOL.shorter[0], SMALL_TOOL.text, LARGE_TOOL.shorter[0]]),
        (23, [LARGE_TOOL.shorter[0], SMALL_TOOL.text, "### l"]),
        (33, [LARGE_TOOL.shorter[0], "### s", "### l"]),
        (40, ["### l", "### s", "### l"]),
    ],
)
def test_then_details_of_the_capabilities(missing: int, tools: list[str]) -> None:
    """Then descriptions of parameters go, and only after all of them tools beyond their names."""
    fitted = fit(ROOM - missing)

    assert texts(fitted)["TOOLS"] == "[TOOLS]\n" + "\n".join(tools)
    assert [*fitted.reduced_blocks.items()][2:] == [("TOOLS", "block_shortened")]
    assert texts(fitted)["PROFILE"] == PROFILE.text


@pytest.mark.parametrize(("missing", "text"), [(1, "ccc"), (2, "bb"), (3, "a")])
def test_details_go_one_after_the_other(missing: int, text: str) -> None:
    """From the largest of the shorter texts to the least."""
    entry = Entry(text="dddd", shorter=("ccc", "bb", "a"))
    block = Block(tag="D", entries=(entry,), gives_way=TrimPolicy.BY_DETAIL)

    assert texts(fit(4 + 4 - missing, [block])) == {"D": text}


@pytest.mark.parametrize(("missing", "left"), [(1, 37), (20, 18), (37, 1), (38, 0)])
def test_then_the_end_of_the_profile(missing: int, left: int) -> None:
    """At last the profile loses its end, and no more of it than has to go."""
    fitted = fit(least("MEMORY", "PLAN", "MOOD", "TOOLS") - missing)

    assert texts(fitted)["PROFILE"] == "t" * left + "\n(shortened)"
    assert [*fitted.reduced_blocks.items()][-1] == ("PROFILE", "block_shortened")
    assert sum(fitted.tokens.values()) == least("MEMORY", "PLAN", "MOOD", "TOOLS") - missing


def test_what_may_not_go() -> None:
    """Where the protected parts do not fit, each is named, and how much is missing in all."""
    parts = least("MEMORY", "PLAN", "MOOD", "TOOLS", "PROFILE") + 50

    assert sum(fit(parts, tools=50).tokens.values()) + 50 == parts
    with pytest.raises(BudgetExceededError) as refused:
        fit(parts - 7, tools=50)
    assert refused.value.detail == (
        f"the parts that may not be left out need {parts} tokens, 7 more than the {parts - 7} "
        "available: FIXED 100, TOOLS 29, MEMORY 27, PROFILE 16, tools 50"
    )


def test_no_tools_are_not_named() -> None:
    """Where there are no tools, the refusal does not speak of them."""
    with pytest.raises(BudgetExceededError, match=r"available: FIXED 100$"):
        fit(99, [FIXED])


def test_settings_that_shorten_the_system_message_are_named_if_it_is_the_largest() -> None:
    """With its tokens; a longer part makes them no remedy, and so does a short system message."""
    short = replace(FIXED, tag="CORE_IDENTITY")
    identity = replace(short, entries=(Entry(text="x" * 296),))
    with pytest.raises(BudgetExceededError) as refused:
        fit(99, [identity])
    assert "CORE_IDENTITY, is the largest with 300" in refused.value.detail
    for setting in ("prompts.identity: plain", "prompts.identity_file"):
        assert setting in refused.value.detail
    with pytest.raises(BudgetExceededError, match=r"CORE_IDENTITY 300, tools 301$"):
        fit(99, [identity], tools=301)
    with pytest.raises(BudgetExceededError, match=r"CORE_IDENTITY 100$"):
        fit(99, [short])


def test_a_profile_shorter_than_its_mark() -> None:
    """A text that a cut would make longer stays as it is."""
    brief = replace(PROFILE, entries=(Entry(text="brief", shorten=reported, longest=5),))

    with pytest.raises(BudgetExceededError, match="PROFILE 9"):
        fit(108, [FIXED, brief])


@pytest.mark.parametrize("way", [TrimPolicy.BY_TAIL, TrimPolicy.BY_DETAIL])
def test_a_block_that_cannot_shrink(way: TrimPolicy) -> None:
    """A block that has no shorter form stays whole, and another one gives way."""
    stiff = Block(tag="STIFF", entries=(Entry(text="s" * 16),), gives_way=way)

    fitted = fit(100, [stiff, replace(PROFILE, entries=(reported(50),)), MOOD])

    assert texts(fitted) == {"STIFF": "s" * 16, "PROFILE": reported(50).text}
    with pytest.raises(BudgetExceededError):
        fit(19, [stiff])


def test_a_very_long_text_of_few_tokens_is_cut_by_its_characters() -> None:
    """It isn't counted again and again, which takes seconds for some texts of megabytes."""
    counted = list[int]()

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 100

    def dashes(chars: int) -> Entry:
        return Entry(text="-" * chars, shorten=dashes, longest=1_000_000)

    profile = replace(PROFILE, entries=(dashes(1_000_000),))
    fitted = fit_blocks([profile], Budget(available=1_000, tools=0, strategy=OldestFirst()), count)

    most = 1_000 * MAX_CHARS_PER_TOKEN
    assert texts(fitted) == {"PROFILE": "-" * most}
    assert max(chars for chars in counted if chars < 1_000_000) == most


def test_only_what_gave_way_is_reported() -> None:
    """Not a block that had nothing to give."""
    stiff = Block(tag="STIFF", entries=(Entry(text="s" * 16),), gives_way=TrimPolicy.BY_DETAIL)

    assert fit(20 + 50, [stiff, PROFILE]).reduced_blocks == {"PROFILE": "block_shortened"}
    empty = replace(stiff, entries=(), placeholder="s" * 16)
    assert fit(20 + 50, [empty, PROFILE]).reduced_blocks == {"PROFILE": "block_shortened"}


@pytest.mark.parametrize(
    ("memory", "kept"), [(1_000, 3), (46, 3), (45, 2), (36, 2), (35, 1), (26, 1), (25, 0)]
)
def test_a_cap_on_history(memory: int, kept: int) -> None:
    """A cap binds history alone, however much is left."""
    fitted = fit(TOTAL + 1_000, memory=memory + 4)

    assert f"[MEMORY count={kept}]" in texts(fitted)["MEMORY"]
    assert fitted.tokens["MEMORY"] <= max(memory + 4, least("MEMORY"))
    assert fitted.reduced_blocks == {}


def test_a_cap_above_the_budget() -> None:
    """A cap above what is left does not lift the budget."""
    assert sum(fit(TOTAL - 1, memory=10_000).tokens.values()) <= TOTAL - 1


def test_none_keeps_everything() -> None:
    """The strategy none sends all or refuses, and no cap on history binds it."""
    fitted = fit(TOTAL + 9, strategy=KeepAll(), memory=64, tools=9)

    assert fitted.blocks == BLOCKS
    assert [(each.message_ids, each.outcome) for each in fitted.decisions] == [
        ((f"m{n}",), "kept") for n in range(3)
    ]
    assert (sum(fitted.tokens.values()), fitted.tools) == (TOTAL, 9)
    with pytest.raises(BudgetExceededError, match=r"leaves nothing out.* 1 more .*MEMORY.*tools 9"):
        fit(TOTAL + 8, strategy=KeepAll(), tools=9)


def test_an_insufficient_strategy_is_reported() -> None:
    """Whether the strategy's choice had to be cut is passed on."""
    for strategy, insufficient in ((KeepAll(name="everything"), True), (OldestFirst(), False)):
        history = fit(TOTAL - 1, strategy=strategy).history
        assert history
        assert history.insufficient is insufficient


def test_without_history() -> None:
    """Blocks without a history fit, and there is nothing to decide."""
    fitted = fit(100, [FIXED])

    assert (fitted.blocks, fitted.decisions, fitted.tokens) == ((FIXED,), (), {"FIXED": 100})
    assert block_tokens(FIXED, len) == 100


# --- the run in flight -----------------------------------------------------------------------

IN_FLIGHT = (*BLOCKS, RUN)
FULL = TOTAL + 97 + 13 + 47
#: The tokens that clearing the older result frees.
CLEARING = 90 - 25


def outcomes(fitted: Fitted) -> dict[str, str]:
    """Return the outcome for each message."""
    return {name: each.outcome for each in fitted.decisions for name in each.message_ids}


def test_a_run_follows_the_other_blocks() -> None:
    """Where everything fits, it is whole, and counted."""
    fitted = fit(FULL, IN_FLIGHT)

    assert fitted.blocks == IN_FLIGHT
    assert fitted.tokens["RUN"] == 97 + 13 + 47


def test_a_run_gives_way_first() -> None:
    """Its older results are cleared before any turn of history goes."""
    cleared = outcomes(fit(FULL - CLEARING, IN_FLIGHT))

    assert [name for name, outcome in cleared.items() if outcome == "cleared"] == ["a1"]
    assert [name for name, outcome in cleared.items() if outcome == "dropped"] == []


def test_without_history_a_run_has_all_that_is_left() -> None:
    """To the token."""
    assert fit(100 + 157, (FIXED, RUN)).blocks == (FIXED, RUN)
    assert outcomes(fit(100 + 156, (FIXED, RUN)))["a1"] == "cleared"


def test_the_definitions_of_tools_are_no_room_for_a_run() -> None:
    """They are paid for before the run and history share what is left."""
    without = fit(FULL - CLEARING, IN_FLIGHT)
    beside = fit(FULL - CLEARING + 50, IN_FLIGHT, tools=50)

    assert beside.decisions == without.decisions
    assert beside.tokens == without.tokens


def test_history_takes_at_most_half_of_what_both_share() -> None:
    """A long history leaves a run its calls, and gets what the run leaves."""
    long = replace(MEMORY, entries=MEMORY.entries * 40)
    fitted = fit(TOTAL + 250, (FIXED, long, RUN))
    fates = outcomes(fitted)

    assert {fates[name] for name in ("a", "a1", "u", "b", "b1")} == {"kept"}
    assert TOTAL + 250 - 20 < sum(fitted.tokens.values()) <= TOTAL + 250


def test_a_long_run_leaves_history_its_half() -> None:
    """Both fill what they have, to the last entry that goes in."""
    memory = replace(MEMORY, entries=MEMORY.entries * 40)
    long = run(entries=tuple(said(f"u{n}", 13) for n in range(40)))
    fitted = fit(100 + 27 + 13 + 200, (FIXED, memory, long))

    assert fitted.tokens == {"FIXED": 100, "MEMORY": 131, "RUN": 104}


def test_history_that_fits_into_its_half_is_whole_next_to_a_long_run() -> None:
    """The run takes what that leaves, to the token."""
    memory = replace(MEMORY, entries=MEMORY.entries * 3)
    long = run(entries=tuple(said(f"u{n}", 13) for n in range(40)))
    fitted = fit(100 + 27 + 13 + 200, (FIXED, memory, long))

    assert fitted.tokens == {"FIXED": 100, "MEMORY": 110, "RUN": 130}


def test_history_that_a_search_read_claims_its_half_next_to_a_long_run() -> None:
    """Its newest turns would fit into less, but what was found fills any room."""
    found = Omission(message_ids=("old",), reason=OLDER)
    memory = replace(MEMORY, entries=MEMORY.entries * 3, omissions=(found,))
    long = run(entries=tuple(said(f"u{n}", 13) for n in range(40)))
    relevance = Relevance(rank=lambda _question, _passages, _now: [])
    fitted = fit(100 + 27 + 13 + 200, (FIXED, memory, long), strategy=relevance)

    assert fitted.tokens == {"FIXED": 100, "MEMORY": 110, "RUN": 104}


def test_what_history_may_not_use_is_the_runs() -> None:
    """A cap on history leaves more for the run than half of what both share."""
    long = replace(MEMORY, entries=MEMORY.entries * 40)
    fitted = fit(330, (FIXED, long, RUN), memory=64)

    assert fitted.tokens["MEMORY"] <= 64
    assert fitted.tokens["RUN"] == 97 + 13 + 47


def test_what_a_strategy_does_not_choose_is_the_runs() -> None:
    """A window of one turn leaves a run all but that."""
    long = replace(MEMORY, entries=MEMORY.entries * 40)
    fitted = fit(320, (FIXED, long, RUN), strategy=WindowSize(max_messages=1))

    assert {outcomes(fitted)[name] for name in ("a", "a1", "u", "b", "b1")} == {"kept"}
    assert fitted.tokens["MEMORY"] > 20


def test_the_newest_group_of_a_run_is_protected() -> None:
    """Where it doesn't fit, the refusal names it."""
    with pytest.raises(BudgetExceededError, match="RUN 47"):
        fit(100 + 46, (FIXED, RUN))
    assert fit(100 + 47, (FIXED, RUN)).tokens == {"FIXED": 100, "RUN": 47}


def test_none_keeps_runs_whole_or_refuses() -> None:
    """What the strategy means holds for the run as well."""
    assert set(outcomes(fit(FULL, IN_FLIGHT, strategy=KeepAll())).values()) == {"kept"}
    with pytest.raises(BudgetExceededError):
        fit(FULL - 1, IN_FLIGHT, strategy=KeepAll())


def test_a_block_can_be_replaced() -> None:
    """Its tokens are those of the new one, and all others stay."""
    fitted = fit_blocks(BLOCKS, Budget(available=TOTAL, tools=7, strategy=OldestFirst()), len)
    changed = fitted.with_block(replace(FIXED, entries=(Entry(text="g" * 6),)), len)

    assert changed.total == fitted.total - 90
    assert changed.tokens["FIXED"] == 10
    assert [block.text for block in changed.blocks[1:]] == [b.text for b in fitted.blocks[1:]]
    assert changed.decisions == fitted.decisions
