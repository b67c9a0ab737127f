"""What the bench of vectors promises."""

from bench.recall.vectors import BOUNDS, LEAST_ROWS_PER_SECOND, broken


def test_each_bound_is_held_by_itself() -> None:
    """At the bound it holds, beyond it is named."""
    held = {**BOUNDS, "rows_per_second": LEAST_ROWS_PER_SECOND}

    assert list(broken(held)) == []
    for name, most in BOUNDS.items():
        (line,) = broken({**held, name: most + 1})
        assert line.startswith(f"{name} is ")
    (line,) = broken({**held, "rows_per_second": 1})
    assert line == f"rows_per_second is 1, under {LEAST_ROWS_PER_SECOND}"
