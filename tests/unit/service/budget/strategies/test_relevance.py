"""The strategy that keeps the messages most relevant to the question."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from formatters.model import Message, Passage, Role
from service.budget.groups import Group
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import Relevance
from service.budget.strategy_names import UnknownStrategyError, read_strategy
from service.conversation.context_config import ContextConfig
from service.recall.ranking import RANKING_STRATEGIES, RELEVANCE


def said(place: int, content: str, role: Role = Role.HUMAN, tokens: int = 10) -> Group:
    """Return a group of one message."""
    message = Message(id=f"m{place}", role=role, content=content)
    return Group(index=place, tokens=tokens, tokens_last=tokens, messages=(message,))


TALK = [said(n, text) for n, text in enumerate(["boat", "tree", "boat", "lake", "a boat?"])]


def by_word(question: str, passages: Sequence[Passage], now: datetime | None) -> list[float]:
    """Score by the words that a passage shares with the question."""
    asked = set(question.split())
    return [float(len(asked & set(passage.text.split()))) + 0.004 for passage in passages]


BY_WORD = Relevance(rank=by_word, recent_share=0.25)


def test_groups_are_ranked_in_their_places() -> None:
    """The newest stays within its share, then what shares words with the newest human message."""
    talk = [*TALK[:4], said(4, "boat")]
    fit = BY_WORD.fit(talk, 30)

    assert [group.index for group in fit.kept] == [0, 2, 4]
    assert {index: decision.score for index, decision in fit.decisions.items()} == {
        0: 1.0,
        1: 0.0,
        2: 1.0,
        3: 0.0,
    }
    assert {decision.reason for decision in fit.decisions.values()} == {"score"}
    assert not fit.over_budget


def test_what_was_too_long_is_not_said_to_score_less() -> None:
    """Where one with a lower score was kept, or it doesn't fit even alone, its length is why."""
    talk = [said(0, "x"), said(1, "boat", tokens=25), said(2, "y", tokens=90), said(3, "boat")]
    fit = BY_WORD.fit(talk, 30)
    longer = BY_WORD.fit([*talk[:3], said(3, "lake")._replace(tokens=20), said(4, "boat")], 30)

    assert [group.index for group in fit.kept] == [0, 3]
    assert {n: each.reason for n, each in fit.decisions.items() if n} == {
        1: "no_room",
        2: "no_room",
    }
    assert [group.index for group in longer.kept] == [3, 4]
    assert longer.decisions[0].reason == "score"


def test_the_question_is_the_newest_human_message() -> None:
    """What the assistant says isn't asked; without a human the newest message is."""
    asked: list[str] = []

    def rank(question: str, passages: Sequence[Passage], now: datetime | None) -> list[float]:
        asked.append(question)
        return [0.0] * len(passages)

    strategy = Relevance(rank=rank)
    strategy.fit([*TALK, said(5, "an answer", Role.AI)], 20)
    strategy.fit([said(n, f"answer {n}", Role.AI) for n in range(3)], 20)

    assert asked == ["a boat?", "answer 2"]


def test_the_question_is_not_ranked_by_itself() -> None:
    """With it among the others, nothing would match as well; it scores as the best of them."""
    ranked: list[list[str]] = []

    def rank(_: str, passages: Sequence[Passage], now: datetime | None) -> list[float]:
        ranked.append([passage.text for passage in passages])
        return [9.0, 8.0, 1.0, 1.0][: len(passages)]

    talk = [said(0, "boat"), said(1, "tree"), said(2, "a boat?", tokens=16)]
    answers = [said(3 + n, f"answer {n}", Role.AI) for n in range(2)]
    fit = Relevance(rank=rank).fit([*talk, *answers], 30)

    assert ranked == [["boat", "tree", "answer 0", "answer 1"]]
    assert [group.index for group in fit.kept] == [2, 4]
    assert {index: decision.score for index, decision in fit.decisions.items()} == {
        0: 9.0,
        1: 8.0,
        2: 9.0,
        3: 1.0,
    }


def test_of_two_that_score_alike_the_newer_stays() -> None:
    """If scores are equal, the newest are kept."""
    fit = BY_WORD.fit([said(n, "x") for n in range(4)], 20)

    assert [group.index for group in fit.kept] == [2, 3]


def test_answers_stay_with_their_question() -> None:
    """The newest groups reach back to a human message, unless that takes too much."""
    talk = [*TALK, said(5, "an answer", Role.AI), said(6, "more", Role.AI)]

    assert [group.index for group in BY_WORD.recent(talk, 60).kept] == [4, 5, 6]
    assert [group.index for group in BY_WORD.recent(talk, 59).kept] == [6]
    assert [group.index for group in BY_WORD.recent(talk[5:], 100).kept] == [5, 6]


@pytest.mark.parametrize(
    ("answer", "role", "tokens", "kept"),
    [
        ("which one?", Role.AI, 4, True),
        ("which one?", Role.AI, 5, False),
        ("the sail.", Role.AI, 4, False),
        ("which one?", Role.HUMAN, 4, False),
    ],
)
def test_a_short_question_stays_with_its_answer(
    answer: str, role: Role, tokens: int, kept: bool
) -> None:
    """The model's question before the newest human message, up to a tenth of the budget."""
    talk = [*(said(n, "boat") for n in range(3)), said(3, answer, role, tokens), said(4, "a boat")]

    assert (3 in [group.index for group in BY_WORD.fit(talk, 40).kept]) is kept


def test_a_short_question_needs_room() -> None:
    """Beside what is always kept."""
    talk = [said(0, "Which one?", Role.AI, 4), said(1, "a boat", tokens=38)]

    assert [group.index for group in BY_WORD.fit(talk, 40).kept] == [1]


@pytest.mark.parametrize("budget", [0, 9, 25, 50])
def test_without_a_ranker_the_newest_stay(budget: int) -> None:
    """The core has no ranker of its own; its strategy is then that of the oldest first."""
    one, other = Relevance().fit(TALK, budget), OldestFirst().fit(TALK, budget)

    assert (one.kept, one.decisions) == (other.kept, other.decisions)


def test_what_fits_is_not_ranked() -> None:
    """Everything is kept where it fits, without a score."""
    fit = BY_WORD.fit(TALK, 50)

    assert fit.kept == tuple(TALK)
    assert not fit.decisions


def test_pinned_groups_go_first() -> None:
    """A pinned group stays whatever it scores."""
    talk = [said(0, "x")._replace(pinned=True), *TALK[1:4], said(4, "boat")]

    assert [group.index for group in BY_WORD.fit(talk, 30).kept] == [0, 2, 4]


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_a_part_of_the_whole(share: float) -> None:
    """A share beyond 0 and 1 is refused, in code and in a request."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        Relevance(recent_share=share)
    with pytest.raises(UnknownStrategyError, match="between 0 and 1"):
        read_strategy({"name": "relevance", "recent_share": share})


def test_the_ranker_stays_with_parameters() -> None:
    """A request sets the share, and neither reaches nor loses what ranks."""
    strategy = read_strategy({"name": "relevance", "recent_share": 0.5}, RANKING_STRATEGIES)

    assert strategy == Relevance(recent_share=0.5, rank=RELEVANCE.rank)
    assert strategy.recalls
    with pytest.raises(UnknownStrategyError, match="it has chunk_share, recent_share"):
        read_strategy({"name": "relevance", "rank": 1}, RANKING_STRATEGIES)


def test_only_with_a_ranker_it_recalls() -> None:
    """Neither the plain strategy, nor any other, nor a list with it in it has rows recalled."""
    several = read_strategy(["relevance", "oldest_first"], RANKING_STRATEGIES)

    assert not any(each.recalls for each in (Relevance(), OldestFirst(), several))


def test_conversations_in_process_rank() -> None:
    """The strategy of a configuration in process has the ranker."""
    assert ContextConfig(truncation_strategy="relevance").strategy is RELEVANCE


def test_no_groups_need_no_budget() -> None:
    """A budget below 0 is no error, as it may be where a heading takes all of it."""
    assert BY_WORD.fit([], -1).kept == ()
