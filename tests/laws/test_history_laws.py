"""Laws of the block of history in both layouts, for every strategy there is."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recounts import OVERHEAD, cost, tokens
from formatters.model import Block, Count, Facts, MemoryView, Row, render
from formatters.native import native_history
from formatters.rows import read_rows
from formatters.shared_memory import NONE_FITS, shared_memory
from service.budget.counting import measure
from service.budget.decisions import PRESENT, FittedBlock
from service.budget.fit_history import MIN_CHARS, fit_history
from service.budget.strategy_names import read_strategy
from tests.laws.examples import CHOICES, PASTS, choices, few

every_strategy = pytest.mark.parametrize("name", CHOICES)

VIEWS = st.builds(
    MemoryView,
    limit=st.one_of(st.none(), st.integers(0, 12)),
    message_chars=st.sampled_from([500, 500, 20, None]),
    minutes_west=st.sampled_from([0, -480]),
    tool_results=st.sampled_from(["recalled", "annotated", "printed"]),
    tool_result_chars=st.sampled_from([500, 20, None]),
)

FACTS = st.builds(
    lambda rows, view, layout: Facts(
        current_input="", history=read_rows(rows), memory=view, layout=layout
    ),
    PASTS,
    VIEWS,
    st.sampled_from(["tagged", "chat"]),
)

BUDGETS = st.one_of(st.integers(64, 250), st.integers(64, 3_000))

#: The longest opening that the block has here.
HEADING = "[SHARED_MEMORY count=99]\nRecent conversation memory:\n\n"


def remembered(facts: Facts) -> Block:
    """Show history as its layout does."""
    return native_history(facts) if facts.layout == "chat" else shared_memory(facts)


def fit(block: Block, spec: object, budget: int, count: Count) -> FittedBlock:
    """Fit history into n tokens."""
    return fit_history(block, read_strategy(spec), budget, count)


def recounted(fitted: FittedBlock) -> int:
    """Count what is sent with tiktoken itself."""
    return sum(cost(message) for message in render(fitted.blocks))


@every_strategy
@few
@given(facts=FACTS, budget=BUDGETS, data=st.data())
def test_history_keeps_to_its_budget(
    name: str, count: Count, facts: Facts, budget: int, data: st.DataObject
) -> None:
    """History is never over its budget, its summary included, and pieces count as the whole."""
    fitted = fit(remembered(facts), data.draw(choices(name)), budget, count)

    assert recounted(fitted) <= budget
    assert recounted(fitted) == sum(measure(fitted.blocks, count).values())


@every_strategy
@few
@given(facts=FACTS, budget=BUDGETS, data=st.data())
def test_what_is_called_present_is(
    name: str, count: Count, facts: Facts, budget: int, data: st.DataObject
) -> None:
    """Every row is in one decision, and is called present just where it is."""
    fitted = fit(remembered(facts), data.draw(choices(name)), budget, count)
    decided = Counter(id_ for each in fitted.decisions for id_ in each.message_ids)
    sent = [each for each in fitted.decisions if each.outcome in PRESENT]

    assert decided == Counter(message.id for message in facts.history)
    assert {id_ for each in sent for id_ in each.message_ids} == {
        message.id for entry in fitted.block.entries for message in entry.messages
    }


@every_strategy
@few
@given(facts=FACTS, budget=BUDGETS, data=st.data())
def test_changes_are_reported(
    name: str, count: Count, facts: Facts, budget: int, data: st.DataObject
) -> None:
    """Turns keep their order, and their text unless a decision says that they lost some."""
    block = remembered(facts)
    fitted = fit(block, data.draw(choices(name)), budget, count)
    lost = {
        id_
        for each in fitted.decisions
        if each.reason in ("shortened", "result_cleared")
        for id_ in each.message_ids
    }
    before, after = texts(block), texts(fitted.block)

    assert [ids for ids in before if ids in after] == list(after)
    for ids, shown in after.items():
        assert shown == before[ids] or lost.intersection(ids)


def texts(block: Block) -> dict[tuple[str, ...], object]:
    """Return what is sent for each turn, by the ids of its messages; a summary has none."""
    return {
        tuple(message.id for message in entry.messages): (entry.text, entry.native)
        for entry in block.entries
        if entry.messages
    }


@every_strategy
@few
@given(facts=FACTS, budget=BUDGETS, data=st.data())
def test_nothing_is_left_out_without_need(
    name: str, count: Count, facts: Facts, budget: int, data: st.DataObject
) -> None:
    """What fits whole stays whole, unless a window leaves it out."""
    block = remembered(facts)
    fitted = fit(block, data.draw(choices(name)), budget, count)
    whole = sum(cost(message) for message in render((block,)))

    if whole <= budget and "window" not in {each.reason for each in fitted.decisions}:
        assert replace(fitted.block, moves=block.moves) == block
    assert whole > budget or not fitted.summary


@pytest.mark.parametrize("name", ["oldest_first", "middle_out", "importance", "stable_window"])
@few
@given(facts=FACTS, budget=BUDGETS)
def test_history_is_not_empty_where_a_shortened_turn_fits(
    name: str, count: Count, facts: Facts, budget: int
) -> None:
    """Strategies that go by tokens keep at least a part of some turn."""
    block = remembered(facts)
    fitted = fit(block, name, budget, count)
    if not block.entries or fitted.block.entries:
        return

    for entry in block.entries:
        assert entry.shorten
        least = entry.shorten(MIN_CHARS)
        if facts.layout == "chat":
            alone = Block(tag="HISTORY", entries=(least,), native=True)
            assert sum(cost(message) for message in render((alone,))) > budget
        else:
            assert tokens(HEADING + least.text) + OVERHEAD > budget
            assert fitted.block.text.endswith(NONE_FITS)


@given(facts=FACTS)
def test_the_number_in_the_header_is_the_number_of_printed_rows(facts: Facts) -> None:
    """Nothing in a message can pass for a row, so that rows can be counted on the text."""
    header, *lines = shared_memory(facts).text.split("\n")

    assert header == f"[SHARED_MEMORY count={sum(map(is_row, lines))}]"


def is_row(line: str) -> bool:
    """Return whether a line opens a row, as a reader would who knows nothing of the guard."""
    # a bracket behind a backslash closes nothing, as in annotations
    return bool(re.match(r"  Nexus:|\[[^\]\\]*\] (?:Human|Nexus):", line))


@given(rows=PASTS, more=PASTS)
def test_a_later_row_changes_no_row_before_it(rows: list[Row], more: list[Row]) -> None:
    """History that grows keeps its beginning, unless a result comes late: so caches hit."""
    said = [
        {**row, "id": f"later{place}", "role": "HUMAN", "timestamp": "2099-01-01T00:00:00Z"}
        for place, row in enumerate(more)
    ]
    view = MemoryView(limit=None)
    before, after = (
        native_history(Facts(current_input="", history=read_rows(given), memory=view))
        for given in (rows, [*rows, *said])
    )

    assert render((after,))[: len(render((before,)))] == render((before,))
