"""Inject faults, and check that the guarantees of docs/delivery.md hold.

    python -m bench.chaos [--requests N] [--kills 20] [--seed 1] [--json]
    python -m bench.chaos --redis-kill | --pause | --flushall | --rolling

Starts a server with AOF (everysec) and three ``ctxb worker`` with one SQLite file, and adds
requests to the stream. By default, random workers that have requests in work are killed and
replaced. Answers are read from the stored results, and ``duplicates`` from these and from all
replies. The exit code is 1 if a guarantee is broken; the output says which.

"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from bench.chaos.kills import killed_workers
from bench.chaos.outages import flushed_server, killed_server
from bench.chaos.pauses import paused_worker
from bench.chaos.rolling import rolling_restart
from bench.chaos.stage import Figures, Size, Stage, open_stage
from bench.report import report

MODES: Final[dict[str, Callable[[Stage], Awaitable[Figures]]]] = {
    "kills": killed_workers,
    "redis-kill": killed_server,
    "pause": paused_worker,
    "flushall": flushed_server,
    "rolling": rolling_restart,
}

#: Requests of a run, unless it is said how many: the server dies with 5,000 still waiting.
REQUESTS: Final = {
    "kills": 5000,
    "redis-kill": 5500,
    "pause": 600,
    "flushall": 2000,
    "rolling": 3000,
}

#: Seconds within which groups are there again after a flush.
GROUPS_SECONDS: Final = 2.0


async def run(mode: str, size: Size) -> Figures:
    """Return what became of a run."""
    async with open_stage(size) as stage:
        return await MODES[mode](stage)


def broken(mode: str, size: Size, figures: Figures) -> Iterator[str]:
    """Yield what was promised and did not hold."""
    for name in ("lost", "duplicates", "pending"):
        if figures[name]:
            yield f"{figures[name]} {name}"
    wanted: dict[str, Figures] = {
        "kills": {"kills": size.kills},
        "redis-kill": {"workers_lost": 0},
        "pause": {"answered_by_others": True, "went_on": True, "changed": False},
        "flushall": {"groups_back": True, "workers_lost": 0},
        "rolling": {"exit_codes": [0] * size.workers, "left_behind": 0, "still_in_group": 0},
    }
    for name, value in wanted[mode].items():
        if figures[name] != value:
            yield f"{name} is {figures[name]}, not {value}"


def late(figures: Figures) -> Iterator[str]:
    """Yield what held, but took longer than it should."""
    if figures.get("groups_back_s", 0) > GROUPS_SECONDS:
        yield f"groups were away for {figures['groups_back_s']} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds")
    modes = parser.add_mutually_exclusive_group()
    for mode in list(MODES)[1:]:
        modes.add_argument(f"--{mode}", action="store_const", dest="mode", const=mode)
    parser.set_defaults(mode="kills")
    options = parser.parse_args(arguments)
    size = Size(
        requests=options.requests or REQUESTS[options.mode],
        kills=options.kills,
        workers=options.workers,
        seed=options.seed,
        lease_seconds=options.lease,
    )
    figures = asyncio.run(run(options.mode, size))
    promises = (*broken(options.mode, size, figures), *late(figures))
    return report(figures, promises, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
