"""What a bench that checks promises says in the end."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def report(figures: Mapping[str, Any], broken: Iterable[str], *, as_json: bool) -> int:
    """Print figures, and what was promised and did not hold; returns the exit code."""
    print(json.dumps(figures) if as_json else "\n".join(lines(figures)))
    promises = list(broken)
    for promise in promises:
        print(f"broken: {promise}", file=sys.stderr)
    return 1 if promises else 0


def lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for a person for each figure."""
    for key, value in figures.items():
        if not isinstance(value, dict):
            yield f"{key:<42}{value}"
            continue
        for name, cell in value.items():
            yield f"{f'{key}.{name}':<42}{_cell(cell)}"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {figure}" for name, figure in value.items())
    return str(value)
