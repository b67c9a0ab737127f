"""The strategy that scores."""

import pytest

from formatters.model import Message, Role
from service.budget.groups import Group
from service.budget.strategies.importance import Importance


def said(place: int, role: Role, content: str = "hi") -> Group:
    """Return a group of one message that costs 10 tokens."""
    message = Message(id=f"m{place}", role=role, content=content)
    return Group(index=place, tokens=10, tokens_last=10, messages=(message,))


TALK = [said(n, Role.AI if n % 2 else Role.HUMAN) for n in range(5)]


def test_the_documents_example_scores_as_printed() -> None:
    """20, 18, 36, 34, 60 for two exchanges and a question; the system message is no history."""
    assert list(Importance().scores(TALK).values()) == [20, 18, 36, 34, 60]


@pytest.mark.parametrize(
    ("content", "points"),
    [
        ("plain", 0),
        ("an ERROR", 15),
        ("terror", 0),
        ("the function failed", 25),
        ("the tool failed, update completed", 25),
        ("x" * 1_001, 5),
        ("error " + "x" * 1_000, 20),
    ],
)
def test_keywords_and_length_add_points(content: str, points: int) -> None:
    """Whole words in any case, 25 for all of them at most; 5 for a long message."""
    groups = [said(0, Role.HUMAN, content), said(1, Role.HUMAN)]

    assert Importance().scores(groups)[0] == 20 + points


def test_what_scores_highest_is_kept_in_order() -> None:
    """The newest is kept anyway; the decision on each of the others carries the score."""
    fit = Importance().fit(TALK, 30)

    assert [group.index for group in fit.kept] == [2, 3, 4]
    assert fit.decisions[0].score == 20
    assert 4 not in fit.decisions
    assert {decision.reason for decision in fit.decisions.values()} == {"score"}
    assert not fit.over_budget


def test_what_does_not_fit_is_passed_over() -> None:
    """A cheaper group of a lower score takes the place."""
    dear = Group(index=2, tokens=25, tokens_last=25, messages=TALK[2].messages)
    fit = Importance().fit([*TALK[:2], dear, *TALK[3:]], 30)

    assert [group.index for group in fit.kept] == [0, 3, 4]
    assert [fit.decisions[index].reason for index in (1, 2)] == ["score", "no_room"]


def test_ties_go_to_the_newer() -> None:
    """Two results with one score: the later one is kept."""
    groups = [Group(index=n, tokens=10, tokens_last=10, messages=()) for n in range(3)]

    assert [group.index for group in Importance().fit(groups, 20).kept] == [1, 2]


def test_a_pinned_group_is_kept_whatever_its_score() -> None:
    """Next to the newest, and over the budget if need be."""
    pinned = [TALK[0]._replace(pinned=True), *TALK[1:]]

    assert [group.index for group in Importance().fit(pinned, 30).kept] == [0, 2, 4]
    assert Importance().fit(pinned, 15).over_budget


def test_the_newest_is_kept_over_the_budget() -> None:
    """And the strategy says so; no history gives nothing."""
    assert Importance().fit(TALK, 5).over_budget
    assert [group.index for group in Importance().fit(TALK, 5).kept] == [4]
    assert Importance().fit([], 5).kept == ()


def test_scores_have_two_places() -> None:
    """A seventh of the recency is no round number; only reported scores are rounded."""
    groups = [said(n, Role.AI) for n in range(7)]

    assert Importance().fit(groups, 70).decisions[1].score == 15.71
    assert Importance().scores(groups)[1] == pytest.approx(10 + 40 / 7)


def test_other_roles_have_no_points_of_their_own() -> None:
    """The oldest of them scores nothing at all, nor does a group without messages."""
    groups = [said(0, Role.OTHER), said(1, Role.OTHER), Group(index=2, tokens=1, tokens_last=1)]

    assert Importance().scores(groups) == {0: 0, 1: 40, 2: 0}


def test_keywords_are_found_among_letters_of_any_script() -> None:
    """Texts beyond ASCII are searched as they are."""
    texts = {"café: ERROR": 15.0, "café": 0.0, "an Error": 15.0, "a terror": 0.0}
    scores = {
        text: Importance(recency_weight=0).score(
            Message(id="m", role=Role.OTHER, content=text), 0, 2
        )
        for text in texts
    }

    assert scores == texts
