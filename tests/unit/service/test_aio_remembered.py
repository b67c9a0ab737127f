"""What is remembered is bounded."""

from service.aio import Remembered


def test_the_oldest_is_forgotten() -> None:
    """There is never more than was asked for; what was set again counts as new."""
    known: Remembered[str, int] = Remembered(2)
    known["first"] = 1
    known["second"] = 2
    known["first"] = 3
    known["third"] = 4

    assert dict(known) == {"first": 3, "third": 4}


def test_a_look_makes_nothing_new() -> None:
    """What is read often is forgotten in its turn."""
    known: Remembered[str, int] = Remembered(2)
    known["first"] = 1
    known["second"] = 2
    assert known["first"] == 1
    known["third"] = 3

    assert dict(known) == {"second": 2, "third": 3}
