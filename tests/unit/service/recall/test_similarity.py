"""Scores by words are raised where the meaning is similar."""

import random

import pytest

from formatters.model import Passage, Role
from service.recall.ranking import rank
from service.recall.similarity import add_similarity, standardize


def test_without_similarities_scores_stay() -> None:
    """To the last bit, so that nothing changes for those who don't use vectors."""
    scores = [0.1 + 0.2, 1 / 3, -2.0]

    assert add_similarity(scores, [None, None, None]) == scores
    assert add_similarity([], []) == []


def test_what_is_similar_ranks_higher() -> None:
    """Among rows with equal scores by words; the rows around it gain too."""
    first, second, third, fourth, *_ = add_similarity([0.0] * 6, [0.0, 0.9, 0.0, 0.0, 0.0, 0.0])

    assert second > first > fourth
    assert second > third > fourth


def test_a_row_without_a_vector_is_an_average_one() -> None:
    """It is neither raised nor lowered relative to those that have one."""
    low, unknown, high = add_similarity([1.0, 1.0, 1.0], [0.0, None, 0.8])

    assert low < unknown < high


def test_words_and_meaning_count_in_proportion() -> None:
    """Scores ten times as large leave the order as it is."""
    draw = random.Random(1)  # noqa: S311 - to be repeatable, not secret
    scores = [10 * draw.random() for _ in range(50)]
    similarities = [draw.random() for _ in range(50)]
    order = sorted(range(50), key=add_similarity(scores, similarities).__getitem__)
    large = [10 * score for score in scores]

    assert sorted(range(50), key=add_similarity(large, similarities).__getitem__) == order


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0]])
def test_equal_values_deviate_by_nothing(values: list[float]) -> None:
    """There is no division by zero."""
    assert standardize(values) == [0.0] * len(values)


def test_a_paraphrase_ranks_first() -> None:
    """If its vector says so, though it shares no word with the question; scores are rounded."""
    said = {"It rained": 0.0, "We rented a chalet": 0.7, "Soup again": 0.1, "So much snow": 0.1}
    passages = [Passage(text, Role.HUMAN, None, similarity) for text, similarity in said.items()]
    scores = rank("Where did you stay?", passages)

    assert max(range(4), key=scores.__getitem__) == 1
    assert scores == [round(score, 3) for score in scores]


def test_words_count_less_next_to_similarities() -> None:
    """Those of a passage alone; equal similarities say nothing else."""
    texts = ["The boat is blue", "It rained", "It rained again", "And then the sun came"]
    plain = rank("Which boat?", [Passage(text, Role.HUMAN) for text in texts])
    similar = rank("Which boat?", [Passage(text, Role.HUMAN, None, 0.1) for text in texts])

    assert max(plain) == plain[0] > similar[0] == max(similar)


def test_words_count_as_much_as_ever_in_long_messages() -> None:
    """What is around a passage there is often about something else."""

    def gain(*, continues: bool) -> float:
        others = [f"We saw a ship on day {day}" for day in range(9)]
        parts = [Passage(text, Role.AI, None, 0.1, continues) for text in others]
        scores = rank("Which boat?", [Passage("The boat is blue", Role.AI, None, 0.1), *parts])
        return scores[0] - scores[1]

    assert gain(continues=True) > 1.2 * gain(continues=False) > 0


def test_similarity_counts_more_where_words_are_missing() -> None:
    """A row with many names, but no word of the question, gives way to a similar one."""
    names = "Dear Ann Fontaine, dear Bob Miller, dear Carl Otto, regards, Dora Smith of Paris"
    said = [(names, 0.2), ("They owe us nothing until the roof is dry", 0.5), ("Well", 0.1)] * 3
    passages = [Passage(text, Role.HUMAN, None, similarity) for text, similarity in said]

    def lead(question: str) -> float:
        scores = rank(question, passages)
        return scores[1] - scores[0]

    assert lead("When is the invoice due?") > 0
    assert lead("When is the invoice due?") > lead("Well, regards?")
