"""Vectors are compared from what they have in common."""

from importlib.util import find_spec

import pytest

from service.adapters.openers import find_comparison
from service.build.similarity import pack_vector
from service.ports.services import CompareVectors
from tests.support import lacking


@pytest.fixture
def compare_vectors() -> CompareVectors:
    """Give the function, which needs numpy."""
    if find_spec("numpy") is None:
        lacking("the extra 'semantic' is not installed")
    return find_comparison()


def test_the_nearest_row_is_first(compare_vectors: CompareVectors) -> None:
    """From their mean it is in the question's direction, the others are not."""
    rows = [pack_vector(each) for each in ([1.0, 0.0, 3.0], [0.0, 1.0, 3.0], [-1.0, 0.0, 3.0])]
    near, other, far = compare_vectors([2.0, 0.1, 6.0], rows)

    assert near > other > far
    assert -1.001 < far < near < 1.001


def test_a_single_row_is_not_similar_to_anything(compare_vectors: CompareVectors) -> None:
    """It is what all rows have in common; nor is anything to a question without a direction."""
    assert compare_vectors([1.0, 0.0], [pack_vector([0.0, 1.0])]) == [0.0]
    assert compare_vectors([0.0, 0.0], [pack_vector([0.0, 1.0])] * 2) == [0.0, 0.0]
