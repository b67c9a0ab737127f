"""What became of candidates, and the tokens that this saves."""

from formatters.model import Block, Entry, Message, Role
from service.budget.decisions import BlockOutcome, SentEntry
from service.budget.groups import Fit, Group, GroupDecision

ENTRIES = tuple(Entry(text=name * 10) for name in "abc")
GROUPS = [
    Group(n, 10, 11, (Message(id=name, role=Role.HUMAN, content=name),))
    for n, name in enumerate("abc")
]


def fates(*shown: SentEntry | None, fit: Fit | None = None) -> BlockOutcome:
    """Return what became of three groups of ten tokens each."""
    return BlockOutcome(
        block=Block(tag="M", entries=ENTRIES),
        groups=GROUPS,
        shown={n: each for n, each in enumerate(shown) if each},
        fit=fit or Fit(kept=()),
    )


def whole(place: int) -> SentEntry:
    """Return an entry that is sent as it is."""
    return SentEntry(ENTRIES[place], 10)


def test_what_is_sent_whole_saves_nothing() -> None:
    """And is kept, each for the same reason."""
    all_kept = fates(whole(0), whole(1), whole(2))

    assert all_kept.saved == 0
    assert {(each.outcome, each.reason) for each in all_kept.decisions} == {("kept", "fits")}


def test_what_is_left_out_saves_its_tokens() -> None:
    """All of them, or those that shortening and clearing take away."""
    some = fates(
        None, SentEntry(ENTRIES[1], 4, True), SentEntry(ENTRIES[2], 7, cleared=frozenset("c"))
    )

    assert some.saved == 10 + 6 + 3
    outcomes = [each.outcome for each in some.decisions]
    assert outcomes == ["dropped", "truncated", "cleared"]


def test_the_verdict_of_the_strategy_is_the_reason() -> None:
    """With its score; without a verdict a group was too large."""
    fit = Fit(kept=(), decisions={0: GroupDecision(reason="score", score=0.5)})
    first, second, _ = fates(fit=fit).decisions

    assert (first.reason, first.score) == ("score", 0.5)
    assert (second.reason, second.score) == ("too_large", None)
