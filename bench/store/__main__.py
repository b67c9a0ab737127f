"""Measure builds over growing histories of one owner, on SQLite and on Postgres.

    python -m bench.store [--json] [--sizes 1000 100000 1000000] [--rounds 100]

The databases are real and created for the run: files, and a Postgres server that is stopped after
it. Wall time, medians of interleaved rounds. `README.md` in the folder above explains the keys.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.conversation import QUESTION
from bench.store.loading import OWNER, append, check, load, stored
from bench.store.reads import postgres_rows, sqlite_rows, statements
from service.adapters.sql.migrate import upgrade
from service.app import open_builder
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.wire.request import BuildRequest
from tests.postgres_server import PostgresServer, find_postgres

SIZES: Final = (1_000, 100_000, 1_000_000)
ROUNDS: Final = 100
#: Rows of the history that is stored a second time, one append after the other, to compare with.
COMPARED: Final = 1_000


@dataclass(frozen=True)
class Places:
    """Where the databases of a run are."""

    folder: Path
    server: PostgresServer | None
    kinds: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", ("sqlite", "postgres") if self.server else ("sqlite",))

    def url(self, kind: str, name: object) -> str:
        """Return where a database is."""
        if kind == "postgres" and self.server is not None:
            return self.server.url(f"bench_{name}")
        return f"sqlite:///{self.file(name)}"

    def file(self, name: object) -> Path:
        """Return the file of a database of SQLite."""
        return self.folder / f"bench_{name}.db"

    async def make(self, kind: str, name: object) -> str:
        """Make an empty database of the newest schema; returns its URL."""
        if kind == "postgres" and self.server is not None:
            self.server.run(f"CREATE DATABASE bench_{name}")
        await upgrade(self.url(kind, name))
        return self.url(kind, name)

    def settle(self, kind: str, name: object) -> None:
        """Have Postgres do what it does by itself within minutes: look at its rows, and rest."""
        if kind == "postgres" and self.server is not None:
            self.server.run("VACUUM ANALYZE", f"bench_{name}")
            self.server.run("CHECKPOINT")


@contextmanager
def places() -> Iterator[Places]:
    """Give a folder, and a Postgres if there is one on this machine."""
    binaries = find_postgres()
    with tempfile.TemporaryDirectory(prefix="ctxb-bench-") as folder:
        server = PostgresServer(binaries) if binaries else None
        try:
            if server:
                server.start()
            yield Places(Path(folder), server)
        finally:
            if server:
                server.stop()


def settings(url: str) -> Settings:
    """Return settings under which a build reads all that its budget can hold."""
    return Settings.model_validate(
        {
            "store": {"url": url},
            "memory": {"limit": None},
            "budget": {"max_tokens": 8_000, "reserve_tokens": 2_000},
            "log": {"level": "error"},
        }
    )


def request(number: int, strategy: str = "oldest_first") -> BuildRequest:
    """Return a unique request; its question has a word that one row of a thousand has."""
    asked = QUESTION.replace("?", f" in {number % 1_000}?")
    content = {"current_input": asked, "context": {"strategy": strategy}}
    return BuildRequest.model_validate(
        {"id": f"request_{number}", "owner_key": OWNER, "content": content}
    )


async def fill(found: Places, sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """Make and check the databases; returns the seconds that loading them took."""
    seconds: dict[str, dict[int, float]] = defaultdict(dict)
    for kind in found.kinds:
        for size in sizes:
            url = await found.make(kind, size)
            seconds[kind][size] = round(await load(url, size), 1)
            await check(url, size)
            found.settle(kind, size)
        loaded, appended = [await found.make(kind, name) for name in ("loaded", "appended")]
        await load(loaded, COMPARED)
        await append(appended, COMPARED)
        if await stored(loaded) != await stored(appended):
            raise RuntimeError(f"{kind}: rows that were loaded differ from rows that were appended")
    return seconds


async def measure(
    found: Places, sizes: Sequence[int], rounds: int, strategy: str = "oldest_first"
) -> dict[str, Any]:
    """Build over each history, in turn; returns milliseconds and rows."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    rows: dict[str, dict[int, int]] = defaultdict(dict)
    kept: dict[str, dict[int, int]] = defaultdict(dict)
    steps: dict[int, int] = {}
    draw = random.Random(rounds)  # noqa: S311 - to be repeatable, not secret
    async with AsyncExitStack() as stack:
        builders: dict[tuple[str, int], ContextBuilder] = {}
        for kind in found.kinds:
            for size in sizes:
                opened = open_builder(settings(found.url(kind, size)))
                builder = builders[kind, size] = await stack.enter_async_context(opened)
                asked = await statements(lambda b=builder: b.build_or_raise(request(0, strategy)))  # type: ignore[misc]
                if kind == "sqlite":
                    rows[kind][size], steps[size] = sqlite_rows(found.file(size), asked)
                else:
                    rows[kind][size] = await postgres_rows(found.url(kind, size), asked)
        for number in range(rounds + 1):
            for place, builder in draw.sample(list(builders.items()), len(builders)):
                began = time.perf_counter()
                built = await builder.build_or_raise(request(number, strategy))
                if number:  # the first round warms up
                    times[place].append((time.perf_counter() - began) * 1_000)
                kept[place[0]][place[1]] = built.content.kept
    medians: dict[str, dict[int, float]] = defaultdict(dict)
    for (kind, size), taken in times.items():
        medians[kind][size] = round(statistics.median(taken), 3)
    return {
        "rows_read": rows,
        "kept": kept,
        "sqlite_steps": steps,
        "build_ms": medians,
        **growth(medians, sizes),
    }


def growth(
    medians: Mapping[str, Mapping[int, float]], sizes: Sequence[int]
) -> dict[str, float | None]:
    """Return by how much a build over the longest history takes longer than over the shortest."""
    return {
        f"growth_{kind}": round(medians[kind][max(sizes)] / medians[kind][min(sizes)], 2)
        if kind in medians
        else None
        for kind in ("sqlite", "postgres")
    }


async def run(sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """Measure everything."""
    with places() as found:
        seconds = await fill(found, sizes)
        figures = await measure(found, sizes, rounds)
        recalled = await measure(found, sizes, rounds, "relevance")
    return {**figures, "relevance": recalled, "load_seconds": seconds, "totals_checked": True}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.store")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="rows of the histories")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    figures = asyncio.run(run(options.sizes, options.rounds))
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:16} {json.dumps(value)}")


if __name__ == "__main__":
    main()
