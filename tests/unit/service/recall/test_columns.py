from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Passage, Role
from service.recall import columns, corpus
from service.recall.columns import Lists
from service.recall.ranking import rank

START = datetime(2025, 1, 1, tzinfo=UTC)
WORDS = ("boat", "boats", "lake", "Anna", "the", "paid", "4711", "red", "why", "budget")

numbers = st.lists(st.floats(0, 20), min_size=40, max_size=40)


@contextmanager
def computing(*, in_arrays: bool) -> Iterator[None]:
    """Compute with numpy, however few passages there are, or without it."""
    with (
        patch.object(columns, "MANY_PASSAGES", 0),
        patch.object(columns, "has_numpy", return_value=in_arrays),
    ):
        corpus._CORPORA.clear()
        yield


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    scores=numbers,
    others=numbers,
    reach=st.sampled_from([1.0, 100.0, 300.0, 2_500.0]),
)
def test_arrays_hold_what_lists_do(
    sizes: list[int], scores: list[float], others: list[float], reach: float
) -> None:
    """To the last bit, so that machines with and without numpy rank alike."""
    pytest.importorskip("numpy")
    from service.recall.arrays import Arrays  # noqa: PLC0415 - loads numpy

    count = len(sizes)
    positions = [sum(sizes[:index]) + size / 2 for index, size in enumerate(sizes)]
    results = []
    for math in (Lists, Arrays):
        values, more = math.make(scores[:count]), math.make(others[:count])
        ranges = math.find_ranges(positions, reach, ((), ()))
        around = math.add_around(values, positions, [(reach, ranges)])
        weighted = [(weight, values) for weight in (1.5, -0.75, 0.1, 3.0, 2.0)]
        computed = (
            *ranges,
            *around,
            math.scale(values),
            math.add_weighted([*weighted, (0.3, more)], count),
            math.add_centred(values, 1.5, more, math.make(others[-count:])),
            math.means_around(values, 8),
            math.round_ratios(values, [size**0.15 for size in sizes], 1_000),
        )
        results.append([[float(each) for each in one] for one in computed])

    assert results[0] == results[1]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(WORDS), max_size=40),
            st.sampled_from([Role.HUMAN, Role.AI]),
            st.sampled_from([None, 0, 5, 100]),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(["When did Anna paint the boat red?", "What is the budget now?", "4711", "?"]),
)
def test_ranks_are_those_of_lists(
    said: list[tuple[list[str], Role, int | None]], question: str
) -> None:
    """Whatever is asked, and whether or not passages have times, sessions and words."""
    pytest.importorskip("numpy")
    passages, minutes = [], 0
    for words, speaker, later in said:
        minutes += later or 0
        at = None if later is None else START + timedelta(minutes=minutes)
        passages.append(Passage(" ".join(words), speaker, at))
    results = []
    for in_arrays in (True, False):
        with computing(in_arrays=in_arrays):
            results.append(rank(question, passages, START))

    assert results[0] == results[1]
    assert all(type(score) is float for scores in results for score in scores)
