"""What the demo runs on: a store with a history, a bus, and a worker in a process of its own."""

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.app import connect_client, open_bus, open_observed_worker
from service.cli.history_files import read_history
from service.config.content import ToolsSettings
from service.config.endpoints import HealthSettings, HttpSettings, StoreSettings
from service.config.settings import BusSettings, ReportSettings, Settings
from service.connect import open_stores
from service.errors import ContextBuilderError
from service.ports.bus import Bus
from service.ports.stores import HistoryStore
from service.worker.client import ContextClient

HISTORY: Final = Path(__file__).with_name("history.json")
TOOLS: Final = Path(__file__).with_name("tools.json")

OWNER: Final = "ines-and-tomas"

#: Seconds for which the inspector shows a build: as long as somebody may look at it.
SHOWN_SECONDS: Final = 86_400.0

#: Seconds that the worker has to stop.
STOP_SECONDS: Final = 10.0

#: Lines of the worker's log that are shown where it failed.
LOG_LINES: Final = 15


class DemoError(ContextBuilderError):
    """The demo did not go as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What an orchestrator has at hand."""

    bus: Bus
    client: ContextClient
    history: HistoryStore
    #: Where the bus and the worker are, for people.
    where: str
    #: How other processes reach the bus; None for one in memory.
    bus_url: str | None = None
    #: Where the inspector is, if it was wanted.
    inspector: str | None = None
    worker: "WorkerProcess | None" = None

    def check_worker(self) -> None:
        """Raise `DemoError` where the worker has ended."""
        if self.worker is not None:
            self.worker.check_running()


@asynccontextmanager
async def set_up(folder: Path, *, in_memory: bool, serve: bool) -> AsyncIterator[Stage]:
    """Open a stage whose files are in a folder; raises `DemoError` where the worker fails.

    With ``serve`` its worker has the HTTP interface open, and shows what was said.
    """
    port = free_port() if serve else None
    inspector = None if port is None else f"http://127.0.0.1:{port}"
    settings = Settings(
        bus=BusSettings(url="memory://" if in_memory else None),
        store=StoreSettings(url=f"sqlite:///{folder / 'demo.db'}"),
        tools=ToolsSettings(paths=(TOOLS,)),
        health=HealthSettings(port=None),  # another worker of this machine may have it
        http=HttpSettings(port=port, content="full"),
        reports=ReportSettings(ttl_seconds=SHOWN_SECONDS),
    )
    async with open_stores(settings) as stores:
        await stores.history.append(OWNER, read_history(HISTORY.read_bytes()).rows)
        async with (
            open_bus(settings) as connected,
            connect_client(settings, connected.bus) as client,
        ):
            bus = connected.bus
            if connected.url is None:
                async with _worker_here(settings, bus):
                    where = "in memory, with the worker in this process"
                    yield Stage(
                        bus=bus,
                        client=client,
                        history=stores.history,
                        where=where,
                        inspector=inspector,
                    )
                return
            variables = _variables(settings, connected.url)
            async with worker_process(variables, folder) as worker:
                yield Stage(
                    bus=bus,
                    client=client,
                    history=stores.history,
                    where=f"{connected.origin}; worker: process {worker.process.pid}",
                    bus_url=connected.url,
                    inspector=inspector,
                    worker=worker,
                )


@asynccontextmanager
async def _worker_here(settings: Settings, bus: Bus) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with open_observed_worker(settings, bus) as worker:
        # no task group: it would wrap the demo's errors
        working = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            drained = await working
    if not drained:
        raise DemoError("the worker did not stop in time")


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker, as it would be started in production."""

    process: Process
    log: Path

    def check_running(self) -> None:
        """Raise `DemoError` with the end of its log where it has ended."""
        if self.process.returncode is not None:
            raise DemoError(f"the worker ended with {self.process.returncode}:\n{self._said()}")

    async def stop(self) -> None:
        """Stop it as Kubernetes does; raises `DemoError` where it does not end cleanly.

        Ctrl-C in a terminal reaches it too, and then it may have ended by itself.
        """
        if self.process.returncode is None:
            self.process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await self.process.wait()
        except TimeoutError as error:
            raise DemoError(f"the worker does not stop:\n{self._said()}") from error
        if code != 0:
            raise DemoError(f"the worker ended with {code}:\n{self._said()}")

    def _said(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


@asynccontextmanager
async def worker_process(
    variables: Mapping[str, str], folder: Path
) -> AsyncIterator[WorkerProcess]:
    """Run a worker with some variables, and its log in a folder, while the context lasts."""
    log = folder / "worker.log"
    others = {name: value for name, value in os.environ.items() if not name.startswith("CTXB_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.cli", "worker"),
            cwd=folder,  # where no config.yml of somebody else is
            env={**others, **variables},
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
        )
    worker = WorkerProcess(process, log)
    try:
        yield worker
        await worker.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _variables(settings: Settings, url: str) -> dict[str, str]:
    """Return what of the settings is not as by default, as a process of its own reads it."""
    return {
        "CTXB_BUS__URL": url,
        "CTXB_HEALTH__PORT": "null",
        "CTXB_HTTP__PORT": json.dumps(settings.http.port),
        "CTXB_HTTP__CONTENT": settings.http.content,
        "CTXB_REPORTS__TTL_SECONDS": str(settings.reports.ttl_seconds),
        "CTXB_STORE__URL": settings.store.url.get_secret_value(),
        "CTXB_TOOLS__PATHS": json.dumps([str(TOOLS)]),
    }


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
