import math

import pytest

from service.recall.bm25 import K1, B, bm25, find_postings, idf

TEXTS = [{"boat": 2, "lake": 1}, {"lake": 1}, {"tree": 3}]


def test_terms_are_looked_up_where_they_are() -> None:
    """Each term of the question has its texts, ascending, with how often it is there."""
    assert find_postings({"lake": 1.0, "car": 1.0}, TEXTS) == {"lake": [(0, 1), (1, 1)], "car": []}


def test_a_score_is_that_of_the_formula() -> None:
    """Rarity times a frequency that saturates, damped by length."""
    lengths = [3, 1, 3]
    query = {"boat": 1.0}
    scores = bm25(query, find_postings(query, TEXTS), lengths)
    damped = K1 * (1 - B + B * 3 / (7 / 3))

    assert scores == pytest.approx([math.log(1 + 2.5 / 1.5) * 2 * (K1 + 1) / (2 + damped), 0, 0])


def test_rare_terms_and_heavy_ones_count_more() -> None:
    """A term that fewer texts have is worth more, and so is one with a weight."""
    assert idf(100, 1) > idf(100, 50) > idf(100, 100) > 0

    query = {"boat": 1.0, "lake": 1.0}
    heavy = {**query, "lake": 3.0}
    one, other = (bm25(q, find_postings(q, TEXTS), [3, 1, 3]) for q in (query, heavy))
    assert other[1] == pytest.approx(3 * one[1])


def test_texts_without_words_score_nothing() -> None:
    """An empty text is no error."""
    assert bm25({"boat": 1.0}, {"boat": []}, [0, 0]) == [0.0, 0.0]
