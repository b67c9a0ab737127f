import pytest

from bench.recall.times import ROOT, _compare, measure_times


@pytest.mark.slow
def test_builds_of_two_trees_are_timed_in_turn() -> None:
    """Each tree builds over the same rows in a process of its own."""
    reported = measure_times(ROOT, sizes=[20], rounds=1)

    assert reported["now_cpu_ms"]["20"] > 0
    assert reported["before_cpu_ms"]["20"] > 0


def test_without_another_tree_only_this_one_is_timed() -> None:
    """A share is of a tree before, so there is none."""
    assert _compare({("now", 20): 2.0}) == {"now_cpu_ms": {"20": 2.0}}
    reported = _compare({("now", 20): 2.0, ("before", 20): 8.0})
    assert reported["share_of_before"] == {"20": 0.25}
