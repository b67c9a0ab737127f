"""Laws of the budget, in both layouts, over every strategy, with runs in flight."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bench.recounts import cost_of_tools, newest_group, parts_of
from service.wire.response import BuildSuccess
from tests.laws.building import (
    CAPS,
    SPARE,
    build,
    built,
    every_strategy,
    of_all_that_fits,
    protected,
    whole,
)
from tests.laws.examples import ASKED, Asked, choices, few


@every_strategy
@few
@given(asked=ASKED, spare=SPARE, cap=CAPS, data=st.data())
def test_no_context_is_over_its_budget(
    name: str, asked: Asked, spare: int, cap: int | None, data: st.DataObject
) -> None:
    """Where the protected parts fit there is a context, and it keeps to every limit."""
    strategy = data.draw(choices(name))
    available = protected(asked, strategy) + spare
    limits: dict[str, Any] = {"max_tokens": available, "memory_tokens": cap}

    if name == "none" and whole(asked).usage.total > available:
        assert build(asked, strategy, **limits).status == "error"
        return
    content = built(asked, strategy, **limits)
    parts = parts_of(content)

    assert sum(parts.costs.values()) + cost_of_tools(content.tools) <= available
    if cap and name != "none":
        assert parts.remembered <= cap


@of_all_that_fits
def test_counts_are_tiktokens(asked: Asked, content: BuildSuccess) -> None:
    """Each block costs what tiktoken counts, and blocks and tools add up to the total.

    Only with parts of a provider it is an estimate.
    """
    usage = content.usage

    assert usage.blocks == parts_of(content).costs
    assert usage.tools == cost_of_tools(content.tools)
    assert sum(usage.blocks.values()) + usage.tools == usage.total
    assert usage.exact == all("provider_parts" not in message for message in content.messages)


@of_all_that_fits
def test_protected_parts_are_kept(asked: Asked, content: BuildSuccess) -> None:
    """Nobody cuts the identity, the human's words, the names of tools or the run's newest group."""
    parts, full = parts_of(content), parts_of(whole(asked))

    for tag in ("CORE_IDENTITY", "THIS_MOMENT"):
        assert parts.texts[tag] == full.texts[tag]
    skills = [line for line in full.texts["CAPABILITIES"].split("\n") if line.startswith("### ")]
    assert set(skills) <= set(parts.texts["CAPABILITIES"].split("\n"))
    assert set(full.texts) - set(parts.texts) <= {"MOOD", "CONSTRAINTS"}
    newest = list(newest_group(full.native.get("RUN", ())))
    assert newest == [] or parts.native["RUN"][-len(newest) :] == newest
    assert content.tools == (asked.tools or [])


@every_strategy
@few
@given(asked=ASKED, missing=st.integers(1, 100), data=st.data())
def test_a_refusal_names_the_parts(
    name: str, asked: Asked, missing: int, data: st.DataObject
) -> None:
    """Where the protected parts do not fit, the refusal names them, and what is missing."""
    strategy = data.draw(choices(name))
    needed = protected(asked, strategy)
    missing = min(missing, needed - 1)  # an identity may be short; a window has a token
    available = needed - missing

    content = build(asked, strategy, max_tokens=available)

    assert content.status == "error"
    assert content.error.code == "budget_exceeded"
    detail = content.error.detail
    assert f"more than the {available} available" in detail
    assert "CORE_IDENTITY " in detail
    assert "THIS_MOMENT " in detail
    if name != "none":
        assert f", {missing} more" in detail
