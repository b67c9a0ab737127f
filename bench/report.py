"""Options and output that all benchmarks share."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def over_data(about: str | None, data: str = "a folder of *.jsonl.gz") -> argparse.ArgumentParser:
    """Return what reads the options of a bench over conversations: their folder, and ``--json``.

    ``about`` is the docstring of its module, ``data`` says what the folder holds.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help=data)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser


def report(figures: Mapping[str, Any], broken: Iterable[str], *, as_json: bool) -> int:
    """Print figures, and what was promised and did not hold; returns the exit code."""
    show(figures, as_json=as_json)
    promises = list(broken)
    for promise in promises:
        print(f"broken: {promise}", file=sys.stderr)
    return 1 if promises else 0


def show(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print figures: as JSON, or a line each."""
    print(json.dumps(figures) if as_json else "\n".join(lines(figures)))


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
