import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import service.budget
from formatters.model import Block, Entry, Message, Role
from service.budget.decisions import (
    PRESENT,
    REASONS,
    Decision,
    FittedBlock,
    Outcome,
    SentEntry,
    tally,
)
from service.budget.groups import Fit, Group, GroupDecision
from service.wire.response import COUNTS


def decision(outcome: Outcome, *ids: str, reason: str = "fits", **fields: int) -> Decision:
    """Return a decision on these messages."""
    return Decision(message_ids=ids, block="B", outcome=outcome, reason=reason, **fields)


def test_detail() -> None:
    """A decision explains itself in a sentence, with its tokens where they are known."""
    kept = decision("kept", "m", tokens=31)
    not_read = decision("not_read", reason="not_read", count=4)

    assert kept.detail == "kept (31 tokens): it fits into the budget"
    assert kept._replace(tokens=1).detail.startswith("kept (1 token): ")
    assert not_read.detail.startswith("not read: they are beyond the limit of rows")


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_are_sentences(reason: str) -> None:
    """Every reason has a sentence of its own."""
    assert decision("kept", reason=reason).detail == f"kept: {REASONS[reason]}"
    assert list(REASONS.values()).count(REASONS[reason]) == 1


def test_tally() -> None:
    """Messages are counted by their outcome; rows not read are no messages."""
    decisions = [
        decision("kept", "1", "2"),
        decision("truncated", "3"),
        decision("repaired", "4"),
        decision("cleared", "5"),
        decision("dropped", "6", "7"),
        decision("filtered", "8"),
        decision("summarized", "9"),
        decision("not_read", count=100),
    ]

    assert tally(decisions) == {
        **dict.fromkeys(("truncated", "repaired", "cleared", "filtered", "summarized"), 1),
        **dict.fromkeys(("kept", "dropped"), 2),
    }
    assert not tally([])
    assert set(get_args(Outcome)) == {*COUNTS, "not_read"}
    assert set(COUNTS) > PRESENT


def test_a_reason_of_another_package() -> None:
    """Its strategy may give reasons that have no sentence here."""
    decision = Decision(message_ids=("a",), block="B", outcome="dropped", reason="mood")

    assert decision.detail == "dropped: its strategy says mood"


def test_reasons_that_our_code_gives_have_a_sentence() -> None:
    """Every literal that becomes a decision or an omission."""
    folder = Path(service.budget.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    given = re.findall(r'(?:GroupDecision\(|reason=|budget, )"(\w+)"', code)

    assert given
    assert set(given) <= set(REASONS)


# --- outcomes of blocks ------------------------------------------------------------------

ENTRIES = tuple(
    Entry(text=name * 10, messages=(Message(id=name, role=Role.HUMAN, content=name),))
    for name in "abc"
)
GROUPS = [Group(n, 10, 11, entry.messages) for n, entry in enumerate(ENTRIES)]


def outcome(*shown: SentEntry | None, fit: Fit | None = None) -> FittedBlock:
    """Return what became of three groups of ten tokens each."""
    block = Block(tag="M", entries=ENTRIES)
    return FittedBlock(
        original=block,
        block=block,
        groups=GROUPS,
        sent={n: each for n, each in enumerate(shown) if each},
        fit=fit or Fit(kept=()),
    )


def whole(place: int) -> SentEntry:
    """Return an entry that is sent as it is."""
    return SentEntry(ENTRIES[place], 10)


def test_what_is_sent_whole_saves_nothing() -> None:
    """And is kept, each for the same reason."""
    all_kept = outcome(whole(0), whole(1), whole(2))

    assert all_kept.saved == 0
    assert {(each.outcome, each.reason) for each in all_kept.decisions} == {("kept", "fits")}


def test_what_is_left_out_saves_its_tokens() -> None:
    """All of them, or those that shortening and clearing take away."""
    some = outcome(
        None,
        SentEntry(replace(ENTRIES[1], reasons={"b": "shortened"}), 4),
        SentEntry(replace(ENTRIES[2], reasons={"c": "result_cleared"}), 7),
    )

    assert some.saved == 10 + 6 + 3
    outcomes = [each.outcome for each in some.decisions]
    assert outcomes == ["dropped", "truncated", "cleared"]


def test_the_decision_of_the_strategy_is_the_reason() -> None:
    """With its score; without a decision a group was not chosen, or was too large to send."""
    fit = Fit(kept=(GROUPS[2],), decisions={0: GroupDecision(reason="score", score=0.5)})
    first, second, third = outcome(fit=fit).decisions

    assert (first.reason, first.score) == ("score", 0.5)
    assert (second.reason, second.score) == ("not_chosen", None)
    assert third.reason == "too_large"
