"""Worker processes for benchmarks: start, query, stop, freeze and kill them."""

import asyncio
import itertools
import json
import os
import signal
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.processes import HUNG_SECONDS, Usage, killed, state, stopped, usage
from service.adapters.sql.migrate import upgrade

#: Seconds between two looks at another process.
LOOK_SECONDS: Final = 0.02


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One ``ctxb worker``."""

    #: Its name in the consumer group.
    name: str
    process: Process
    #: Its log, a line of JSON each.
    log: Path
    #: The address of its health checks, once it has started.
    address: str = ""

    @property
    def runs(self) -> bool:
        """Return whether it has not ended."""
        return self.process.returncode is None

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield what it logged under a name."""
        for line in self.log.read_text(encoding="utf-8").splitlines():
            if f'"{name}"' in line and line.startswith("{"):
                event: dict[str, Any] = json.loads(line)
                if event.get("event") == name:
                    yield event

    async def kill(self) -> None:
        """End it without a warning."""
        await killed(self.process)

    async def stop(self) -> int:
        """Ask it to end; returns its exit code, and raises `TimeoutError` where it hangs."""
        return await stopped(self.process)

    async def freeze(self) -> None:
        """Stop its clock, as a long pause of a machine does; it is stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(HUNG_SECONDS):
            while state(self.process.pid) != "T":  # noqa: ASYNC110 - another process
                await asyncio.sleep(LOOK_SECONDS)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def usage(self) -> Usage:
        """Return its memory and files."""
        return usage(self.process.pid)

    async def metrics(self) -> Mapping[str, float]:
        """Fetch its metrics: by name with labels, as they are on the page."""
        text = await asyncio.to_thread(_fetched, f"{self.address}/metrics")
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("contextbuilder_"): float(value) for name, value in pairs}


class Crew:
    """Workers on one bus, with one configuration; all that still run end with the crew."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        others = {name: value for name, value in os.environ.items() if not name.startswith("CTXB_")}
        self._environment = {
            **others,
            "CTXB_HEALTH__PORT": "0",
            "CTXB_LOG__FORMAT": "json",
            **settings,
        }
        self._folder = folder
        # not by the length of the list: some are hired at the same time
        self._numbers = itertools.count()
        #: All that were ever hired, in their order.
        self.workers: list[WorkerProcess] = []

    @property
    def at_work(self) -> list[WorkerProcess]:
        """Return those that have not ended."""
        return [worker for worker in self.workers if worker.runs]

    async def hire(self) -> WorkerProcess:
        """Start a worker; it takes requests when this returns."""
        name = f"worker-{next(self._numbers)}"
        log = self._folder / f"{name}.log"
        with log.open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "service.cli", "worker", "--consumer", name),
                env=self._environment,
                stdout=DEVNULL,
                stderr=said,
            )
        worker = WorkerProcess(name, process, log)
        self.workers.append(worker)
        async with asyncio.timeout(HUNG_SECONDS):
            while worker.runs and not any(worker.events("worker.started")):  # noqa: ASYNC110 - it logs
                await asyncio.sleep(LOOK_SECONDS)
        if not worker.runs:
            raise SystemExit(f"a worker does not start: {log.read_text(encoding='utf-8')}")
        (listening,) = worker.events("health.listening")
        worker.address = listening["address"]
        return worker

    async def dismiss(self) -> None:
        """Kill all that still run."""
        for worker in self.at_work:
            await worker.kill()


@asynccontextmanager
async def open_crew(folder: Path, settings: Mapping[str, str], *, size: int) -> AsyncIterator[Crew]:
    """Run n workers while the context lasts; ``settings`` are variables ``CTXB_…``."""
    crew = Crew(folder, settings)
    try:
        store = settings.get("CTXB_STORE__URL", "")
        if store.startswith("sqlite"):  # before several workers do it at the same time
            await upgrade(store)
        await asyncio.gather(*(crew.hire() for _ in range(size)))
        yield crew
    finally:
        await crew.dismiss()


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 - a worker of ours
        text: str = response.read().decode()
        return text
