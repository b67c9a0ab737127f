import pytest

from bench.scoreboard.benches import BENCHES
from bench.scoreboard.rows import ROWS, Aim, found


def test_every_bench_has_rows_and_every_row_a_bench() -> None:
    """Only what is run is shown."""
    assert {row.bench for row in ROWS} == set(BENCHES)


def test_no_row_is_there_twice() -> None:
    """A bench has each figure in one row."""
    assert len({(row.bench, row.path) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("path", "there"),
    [
        (("a", "b"), 1),
        (("list", 1), 20),
        (("a", "absent"), None),
        (("absent", "b"), None),
        (("list", 2), None),
        (("a", "b", "c"), None),
        (("null", "b"), None),
    ],
)
def test_what_is_missing_is_none(path: tuple[str | int, ...], there: object) -> None:
    """A path that leads nowhere is no error."""
    assert found({"a": {"b": 1}, "list": [10, 20], "null": None}, path) == there


@pytest.mark.parametrize(
    ("aim", "figure", "met"),
    [
        (Aim("≥", 0.9), 0.9, True),
        (Aim("≥", 1), True, True),
        (Aim(">", 0), 0, False),
        (Aim("≤", 150), 151, False),
        (Aim("<", 2), 1.99, True),
        (Aim("=", 0), 1, False),
    ],
)
def test_an_aim_is_met_or_not(aim: Aim, figure: float, met: bool) -> None:
    """The sign says on which side of the number a figure should be."""
    assert aim.met(figure) is met
