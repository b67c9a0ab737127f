"""Measure the CPU time of a warm build with `relevance`, next to an older tree and plain BM25.

Each size is a history of one owner, in a SQLite file of the tree that reads it; the smallest one is
in the store in memory. Each tree builds in a process of its own, and they take turns.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
SIZES: Final = (600, 20_000, 1_000_000)
#: The most rows in the store in memory.
IN_MEMORY: Final = 600
ROUNDS: Final = 40
#: Words that the rows have; each question asks with two of them.
ASKED: Final = ("lake", "station", "budget", "cousin", "garden", "report", "dinner", "boat")

Question = Callable[[int], float]


def measure_times(
    before: Path | None, sizes: Sequence[int] = SIZES, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Return medians of CPU time in ms: of builds by tree and size, and of BM25 over 600 rows."""
    trees = {"now": ROOT, **({"before": before.resolve()} if before else {})}
    taken: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for size in sizes:
            asks: dict[str, Question] = {}
            for name, tree in trees.items():
                url = f"sqlite:///{folder}/{name}_{size}.db" if size > IN_MEMORY else "memory:"
                asks[name] = stack.enter_context(_process(tree, url, size))
            if size == IN_MEMORY and find_spec("rank_bm25"):
                asks |= {"rank_bm25": _bm25(size), "rank_bm25_index": _bm25(size, rebuilt=True)}
            for number in range(rounds + 2):
                for name, ask in asks.items():
                    ms = ask(number)
                    if number > 1:  # the first ones warm up
                        taken[name, size].append(ms)
    return _compare({key: statistics.median(values) for key, values in taken.items()})


def _compare(medians: Mapping[tuple[str, int], float]) -> dict[str, Any]:
    """Return a table by size for each tree and peer, and ours as shares of the tree before."""
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, size), ms in medians.items():
        figures[f"{name}_cpu_ms"][str(size)] = round(ms, 2)
        if name == "before":
            figures["share_of_before"][str(size)] = round(medians["now", size] / ms, 3)
    return dict(figures)


@contextmanager
def _process(tree: Path, url: str, size: int) -> Iterator[Question]:
    """Start a process that builds with the code of a tree; yields what times a question."""
    command = [sys.executable, "-P", __file__, url, str(size)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(  # noqa: S603 - this file
        command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        asked, answers = process.stdin, process.stdout
        if asked is None or answers is None:
            raise RuntimeError("the process has no pipes")

        def ask(number: int) -> float:
            print(number, file=asked, flush=True)
            return float(answers.readline())

        yield ask
        asked.close()


def _bm25(size: int, *, rebuilt: bool = False) -> Question:
    """Return what ranks the texts of the rows; ``again`` includes making the index."""
    from rank_bm25 import BM25Okapi

    from bench.store.loading import history

    texts = [str(row["content"]) for rows in history(size) for row in rows]
    index = BM25Okapi([text.lower().split() for text in texts])

    def ask(number: int) -> float:
        began = time.process_time()
        ranks = BM25Okapi([text.lower().split() for text in texts]) if rebuilt else index
        ranks.get_top_n(_question(number).lower().split(), texts, n=50)
        return (time.process_time() - began) * 1000

    return ask


def _question(number: int) -> str:
    one, other = ASKED[number % len(ASKED)], ASKED[number // len(ASKED) % len(ASKED)]
    return f"What did we say about the {one} and the {other} in {number}?"


async def _answer(url: str, size: int) -> None:
    """Build for each number of the input, with the code of the tree in the path."""
    from bench.store.loading import OWNER, history, load
    from service.adapters.sql.migrate import upgrade
    from service.app import open_builder
    from service.config.settings import Settings
    from service.wire.request import BuildRequest

    if url != "memory:":
        await upgrade(url)
        await load(url, size)
    settings = {
        "store": {"url": url},
        "memory": {"limit": None},
        "budget": {"max_tokens": 8_000, "reserve_tokens": 2_000},
        "log": {"level": "error"},
    }
    async with open_builder(Settings.model_validate(settings)) as builder:
        for rows in history(size) if url == "memory:" else ():
            await builder.history.append(OWNER, rows)
        for line in sys.stdin:
            text = _question(int(line))
            content = {"current_input": text, "context": {"strategy": "relevance"}}
            request = {"id": f"r{line.strip()}", "owner_key": OWNER, "content": content}
            read = BuildRequest.model_validate(request)
            began = time.process_time()
            await builder.build(read)
            print((time.process_time() - began) * 1000, flush=True)


if __name__ == "__main__":
    asyncio.run(_answer(sys.argv[1], int(sys.argv[2])))
