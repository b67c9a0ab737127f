"""Tests of the bounded cache."""

from formatters.recent import Recent


def test_the_oldest_values_are_dropped() -> None:
    """When newer values fill half of the size, the older half is dropped."""
    dropped: list[str] = []
    recent: Recent[int, str] = Recent(4, dropped.append)
    for key in range(5):
        recent.add(key, f"value {key}", 1)
    assert dropped == ["value 0", "value 1"]
    assert [recent.get(key, 1) for key in range(5)] == [None, None, "value 2", "value 3", "value 4"]


def test_a_value_that_is_used_again_stays() -> None:
    """Reading a value of the older half keeps it."""
    recent: Recent[int, str] = Recent(4)
    for key in (0, 1, 2):
        recent.add(key, f"value {key}", 1)
    assert recent.get(0, 1) == "value 0"
    recent.add(3, "value 3", 1)
    assert recent.get(0, 1) == "value 0"
    assert recent.get(1, 1) is None


def test_a_value_larger_than_half_of_the_size_is_not_kept() -> None:
    """A value that is too large is not added."""
    recent: Recent[int, str] = Recent(4)
    recent.add(0, "small", 1)
    assert recent.get(0, 1) == "small"
    recent.add(1, "large", 3)
    assert recent.get(1, 3) is None
    assert recent.get(0, 1) == "small"
