"""Read the data files of benchmarks: gzipped JSON Lines."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; raises `OSError` or `ValueError` where it can't be read."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
