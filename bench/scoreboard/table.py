"""The one table, and what it says for people and on a page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.scoreboard.outcomes import Outcome
from bench.scoreboard.rows import ROWS, Row, found

#: The placeholder of a missing figure.
ABSENT: Final = "–"
HEAD: Final = ("Bench", "What", "Ours", "Beside", "Aim", "Met")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table."""

    bench: str
    what: str
    ours: str = ""
    beside: str = ""
    aim: str = ""
    #: None where there is no aim, or no figure.
    met: bool | None = None
    #: Whether a promise is broken.
    broken: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells."""
        met = {None: "", True: "yes", False: "no"}[self.met]
        return (self.bench, self.what, self.ours, self.beside, self.aim, met)


def lines(outcomes: Mapping[str, Outcome]) -> Iterator[Line]:
    """Yield one line per row, and one for each bench without figures."""
    for name, outcome in outcomes.items():
        if not outcome.figures:
            yield Line(name, f"{outcome.state}: {outcome.reason}")
            continue
        yield from (_line(row, outcome.figures) for row in ROWS if row.bench == name)


def _line(row: Row, figures: Mapping[str, Any]) -> Line:
    figure = found(figures, row.path)
    beside = ", ".join(f"{name} {shown(found(figures, path))}" for name, path in row.beside.items())
    met = None if figure is None or row.aim is None else row.aim.met(figure)
    broken = met is False and row.aim is not None and row.aim.sign == "="
    return Line(row.bench, row.what, shown(figure), beside, str(row.aim or ""), met, broken)


def shown(figure: object) -> str:
    """Return a figure as it is read."""
    if figure is None:
        return ABSENT
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    if isinstance(figure, int):
        return f"{figure:,}"
    if isinstance(figure, float):
        return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"
    return str(figure)


def text(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as columns for a terminal; the first one is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def markdown(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as a table of Markdown; the first one is the head."""
    for place, row in enumerate(rows):
        yield "|" + "".join(f" {cell} |" if cell else " |" for cell in row)
        if place == 0:
            yield "|" + " --- |" * len(row)
