"""Laws of decisions: one for every candidate, and true."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.budget.decisions import PRESENT
from service.wire.response import COUNTS, BuildSuccess
from tests.laws.building import build, built, protected
from tests.laws.examples import ASKED, CHOICES, Asked, choices, few

every_strategy = pytest.mark.parametrize("name", CHOICES)

#: Tokens next to the protected parts.
SPARE = st.one_of(st.integers(0, 200), st.integers(0, 3_000))

CAPS = st.one_of(st.none(), st.integers(64, 160), st.integers(64, 2_000))

#: The least that a request may ask for history.
LEAST_CAP = 64


@every_strategy
@few
@given(asked=ASKED, spare=SPARE, cap=CAPS, both=st.integers(0, 3), data=st.data())
def test_every_candidate_is_decided_once(
    name: str, asked: Asked, spare: int, cap: int | None, both: int, data: st.DataObject
) -> None:
    """Each row of the history or of the run, or of both, is in one decision and in the sums."""
    stored = [{**row, "role": "HUMAN", "content": "stored"} for row in asked.run[:both]]
    asked = replace(asked, past=[*asked.past, *stored])
    strategy = data.draw(choices(name))
    content = build(
        asked, strategy, max_tokens=protected(asked, strategy) + spare, memory_tokens=cap
    )
    if content.status == "error":
        assert name == "none"
        return
    decided = Counter(id_ for each in content.decisions for id_ in each.message_ids)
    outcomes = Counter(each.decision for each in content.decisions for _ in each.message_ids)

    assert decided == Counter(set(asked.candidates))
    assert all(each.message_ids for each in content.decisions if each.decision != "not_read")
    assert {name: getattr(content, name) for name in COUNTS} == {
        name: outcomes[name] for name in COUNTS
    }
    runs = {id_ for each in content.decisions if each.block == "RUN" for id_ in each.message_ids}
    assert runs == {row["id"] for row in asked.run}


@every_strategy
@few
@given(asked=ASKED, cap=st.integers(64, 600), data=st.data())
def test_the_smallest_budget_is_true(
    name: str, asked: Asked, cap: int, data: st.DataObject
) -> None:
    """With this number of ``memory_tokens`` what was dropped is whole; with one less it is not."""
    strategy = data.draw(choices(name))
    content = built(asked, strategy, memory_tokens=cap)
    reported = [each for each in content.decisions if each.smallest_budget is not None]
    if not reported:
        return
    chosen = data.draw(st.sampled_from(reported))
    least = chosen.smallest_budget
    assert least is not None

    assert least > cap
    assert whole_ones(built(asked, strategy, memory_tokens=least)) >= set(chosen.message_ids)
    if least > LEAST_CAP:
        before = whole_ones(built(asked, strategy, memory_tokens=least - 1))
        assert not before >= set(chosen.message_ids)


def whole_ones(content: BuildSuccess) -> set[str]:
    """Return the candidates that no budget has changed."""
    changed: set[Any] = {"shortened", "result_cleared"}
    return {
        id_
        for each in content.decisions
        if each.decision in PRESENT and each.reason not in changed
        for id_ in each.message_ids
    }
