"""Measure what vectors cost: computing, storing, keeping and comparing them, each with a bound.

    python -m bench.recall.vectors --data DIR [--json]

Texts are those of the first conversation of `locomo`. Times are CPU, so that other work on the
machine matters little. Exits with 1 if a bound is exceeded.
"""

import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.recall.cases import cases
from bench.report import over_data, report
from service.adapters.openers import find_comparison
from service.build.similarity import MAX_COMPARED_ROWS, pack_vector
from service.config.settings import Settings
from service.connect import open_embedder, open_similarity, open_stores

#: Texts of each kind that are embedded alone.
TEXTS: Final = 60
#: Rows of the comparison that a build of a short history makes.
FEW_ROWS: Final = 600
#: The most that a figure may be; rows per second at least. On a slower core than that of the
#: figures in the documents, these are three to five times as much.
BOUNDS: Final[Mapping[str, float]] = {
    "load_ms": 5_000,
    "load_mb": 400,
    "question_ms": 30,
    "row_ms": 60,
    "vector_bytes": 768,
    "owner_mb": 16,
    "compare_600_ms": 5,
    "compare_20000_ms": 150,
}
LEAST_ROWS_PER_SECOND: Final = 15


def main() -> None:
    """Measure and print."""
    options = over_data(__doc__).parse_args()
    figures = asyncio.run(measure(options.data))
    sys.exit(report({"vectors": figures}, list(broken(figures)), as_json=options.json))


async def measure(data: Path) -> dict[str, float]:
    """Return the figures by name."""
    case = cases(data, "locomo")[0]
    texts = [str(row["content"]) for row in case.rows]
    before, started = memory_mb(), time.process_time()
    async with open_embedder(Settings()) as embedder:
        figures = {"load_ms": since(started), "load_mb": memory_mb() - before}
        for name, chosen in {"question": [q.text for q in case.questions], "row": texts}.items():
            taken = []
            for text in chosen[:TEXTS]:
                started = time.process_time()
                await embedder.embed([text], question=name == "question")
                taken.append(since(started))
            figures[f"{name}_ms"] = statistics.median(taken)
        packed = [pack_vector(vector) for vector in await embedder.embed(texts[:FEW_ROWS])]
        (question,) = await embedder.embed([case.questions[0].text], question=True)
    figures |= {
        "vector_bytes": len(packed[0]),
        "owner_mb": len(packed[0]) * MAX_COMPARED_ROWS / 1e6,
        **compare(question, packed),
        "rows_per_second": await ingest(case.rows),
    }
    return {name: round(value, 2) for name, value in figures.items()}


def compare(question: Sequence[float], packed: Sequence[bytes]) -> dict[str, float]:
    """Return the times of comparing a question with a short history, and with the most rows."""
    compare_vectors, times = find_comparison(), {}
    for count in (FEW_ROWS, MAX_COMPARED_ROWS):
        rows = list(islice(cycle(packed), count))
        compare_vectors(question, rows)
        started = time.process_time()
        compare_vectors(question, rows)
        times[f"compare_{count}_ms"] = since(started)
    return times


async def ingest(rows: Sequence[Mapping[str, object]]) -> float:
    """Return how many rows of a database get a vector per second of CPU, storing included."""
    with TemporaryDirectory() as folder:
        store = {"url": f"sqlite:///{folder}/history.db"}
        settings = Settings.model_validate({"store": store, "recall": {"semantic": True}})
        async with open_stores(settings) as stores:
            await stores.history.append("o", rows)
            started = time.process_time()
            async with open_similarity(settings, stores.vectors):
                ids = [str(row["id"]) for row in rows]
                while len(await stores.vectors.read("o", "all-MiniLM-L6-v2-int8", ids)) < len(ids):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.5)
            return len(rows) / (time.process_time() - started)


def broken(figures: Mapping[str, float]) -> Iterator[str]:
    """Yield the bounds that are exceeded."""
    for name, most in BOUNDS.items():
        if figures[name] > most:
            yield f"{name} is {figures[name]}, more than {most:g}"
    if figures["rows_per_second"] < LEAST_ROWS_PER_SECOND:
        yield f"rows_per_second is {figures['rows_per_second']}, under {LEAST_ROWS_PER_SECOND}"


def since(started: float) -> float:
    """Return milliseconds of CPU."""
    return (time.process_time() - started) * 1_000


def memory_mb() -> float:
    """Return the most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


if __name__ == "__main__":
    main()
