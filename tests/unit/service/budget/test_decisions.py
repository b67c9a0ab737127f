import re
from pathlib import Path

import pytest

import service.budget
from service.budget.decisions import PRESENT, REASONS, Decision, Outcome, tally


def decision(outcome: Outcome, *ids: str, reason: str = "fits", **fields: int) -> Decision:
    """Return a decision on these messages."""
    return Decision(message_ids=ids, block="B", outcome=outcome, reason=reason, **fields)


def test_detail() -> None:
    """A decision explains itself in a sentence, with its tokens where they are known."""
    kept = decision("kept", "m", tokens=31)
    not_read = decision("not_read", reason="not_read", count=4)

    assert kept.detail == "kept (31 tokens): it fits into the budget"
    assert not_read.detail.startswith("not read: neither the limit of rows nor the budget")


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_are_sentences(reason: str) -> None:
    """Every reason has a sentence of its own."""
    assert decision("kept", reason=reason).detail == f"kept: {REASONS[reason]}"
    assert list(REASONS.values()).count(REASONS[reason]) == 1


def test_tally() -> None:
    """Messages are counted by whether a part of them is sent; rows not read are no messages."""
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

    assert tally(decisions) == (5, 4)
    assert tally([]) == (0, 0)
    assert {"kept", "cleared", "truncated", "repaired"} == PRESENT


def test_a_reason_of_another_package() -> None:
    """Its strategy may give reasons that have no sentence here."""
    decision = Decision(message_ids=("a",), block="B", outcome="dropped", reason="mood")

    assert decision.detail == "dropped: its strategy gives this reason"


def test_reasons_that_our_code_gives_have_a_sentence() -> None:
    """Every literal that becomes a decision or an omission."""
    folder = Path(service.budget.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    given = re.findall(r'(?:GroupDecision\(|reason=|budget, )"(\w+)"', code)

    assert given
    assert set(given) <= set(REASONS)
