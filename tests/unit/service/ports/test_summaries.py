"""What tells that rows are unchanged, and which histories lack a summary."""

import pytest

from service.ports.summaries import FailedScopes, Scope, fingerprint
from tests.support import row


def test_a_fingerprint_tells_contents_and_order() -> None:
    """Rows that say the same have one; others, or the same in another order, have another."""
    first, second = row(1, "HUMAN", "a"), row(2, "AI", "b")
    assert fingerprint([first, second]) == fingerprint(
        [dict(reversed(list(first.items()))), second]
    )
    assert fingerprint([first, second]) != fingerprint([second, first])
    assert fingerprint([first]) != fingerprint([{**first, "content": "c"}])


def test_lacking_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of too many is forgotten."""
    monkeypatch.setattr("service.ports.summaries.MAX_REMEMBERED", 2)
    lacking = FailedScopes()
    for owner in "abc":
        lacking.add(Scope(owner))
    lacking.discard(Scope("c"))
    lacking.discard(Scope("unknown"))
    assert [Scope(owner) in lacking for owner in "abc"] == [False, True, False]
