"""What the demo runs on: a store with a history, a bus, and a worker in a process of its own."""

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
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

#: Seconds for which the inspector shows a build: longer than anyone keeps the demo open.
SHOWN_SECONDS: Final = 86_400.0

#: Seconds for the worker to stop.
STOP_SECONDS: Final = 10.0

#: Lines of the worker's log that are shown if it fails.
LOG_LINES: Final = 15


class DemoError(ContextBuilderError):
    """The service did something else than the demo expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The open parts that the tour uses."""

    bus: Bus
    client: ContextClient
    history: HistoryStore
    #: Where bus and worker run, as the tour prints it.
    where: str
    #: The URL for other processes; None for a bus in memory.
    bus_url: str | None = None
    #: The inspector's URL, if it is served.
    inspector: str | None = None
    worker: "WorkerProcess | None" = None

    def check_worker(self) -> None:
        """Raise `DemoError` if the worker has ended."""
        if self.worker is not None:
            self.worker.check_running()


@asynccontextmanager
async def open_stage(folder: Path, *, in_memory: bool, serve: bool) -> AsyncIterator[Stage]:
    """Start bus, store and worker, with their files in a folder; raises `DemoError` on failure.

    With ``serve`` the worker serves the inspector, which shows all text.
    """
    port = _free_port() if serve else None
    settings = Settings(
        bus=BusSettings(url="memory://" if in_memory else None),
        store=StoreSettings(url=f"sqlite:///{folder / 'demo.db'}"),
        tools=ToolsSettings(paths=(TOOLS,)),
        health=HealthSettings(port=None),  # another worker on this machine may use it
        http=HttpSettings(port=port, content="full"),
        reports=ReportSettings(ttl_seconds=SHOWN_SECONDS),
    )
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings))
        await stores.history.append(OWNER, read_history(HISTORY.read_bytes()).rows)
        connected = await stack.enter_async_context(open_bus(settings))
        client = await stack.enter_async_context(connect_client(settings, connected.bus))
        worker = None
        if connected.url is None:
            await stack.enter_async_context(_worker_in_process(settings, connected.bus))
            where = "in memory, with the worker in this process"
        else:
            variables = _variables(settings, connected.url)
            worker = await stack.enter_async_context(_worker_process(variables, folder))
            where = f"{connected.origin}; worker: process {worker.process.pid}"
        yield Stage(
            bus=connected.bus,
            client=client,
            history=stores.history,
            where=where,
            bus_url=connected.url,
            inspector=None if port is None else f"http://127.0.0.1:{port}",
            worker=worker,
        )


@asynccontextmanager
async def _worker_in_process(settings: Settings, bus: Bus) -> AsyncIterator[None]:
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
    """A worker in a process of its own, as in production."""

    process: Process
    log: Path

    def check_running(self) -> None:
        """Raise `DemoError` with the end of its log if it has ended."""
        if self.process.returncode is not None:
            raise DemoError(f"the worker ended with {self.process.returncode}:\n{self._log_end()}")

    async def stop(self) -> None:
        """Stop it with SIGTERM, as Kubernetes does; raises `DemoError` if it doesn't end cleanly.

        After Ctrl-C it may have ended already, since the terminal signals it too.
        """
        if self.process.returncode is None:
            self.process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await self.process.wait()
        except TimeoutError as error:
            raise DemoError(f"the worker does not stop:\n{self._log_end()}") from error
        if code != 0:
            raise DemoError(f"the worker ended with {code}:\n{self._log_end()}")

    def _log_end(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


@asynccontextmanager
async def _worker_process(
    variables: Mapping[str, str], folder: Path
) -> AsyncIterator[WorkerProcess]:
    """Run a worker with environment variables, logging into a folder, until the context exits."""
    log = folder / "worker.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CTXB_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.cli", "worker"),
            cwd=folder,  # has no config.yml
            env={**inherited, **variables},
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
    """Return the settings that differ from the defaults, as environment variables."""
    return {
        "CTXB_BUS__URL": url,
        "CTXB_HEALTH__PORT": "null",
        "CTXB_HTTP__PORT": json.dumps(settings.http.port),
        "CTXB_HTTP__CONTENT": settings.http.content,
        "CTXB_REPORTS__TTL_SECONDS": str(settings.reports.ttl_seconds),
        "CTXB_STORE__URL": settings.store.url.get_secret_value(),
        "CTXB_TOOLS__PATHS": json.dumps([str(TOOLS)]),
    }


def _free_port() -> int:
    """Return a port that no process of this machine listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
