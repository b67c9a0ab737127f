"""The environment of the demo: a store with a history, a bus, and a worker process."""

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service import cli
from service.app import ConnectedBus, connect_client, open_bus, open_observed_worker
from service.cli.exits import CommandError
from service.cli.history_files import read_history
from service.config.load import DEFAULT_FILE
from service.config.settings import Settings
from service.connect import open_stores
from service.ports.bus import Bus
from service.ports.stores import HistoryStore
from service.worker.client import ContextClient

HISTORY: Final = Path(__file__).with_name("history.json")
TOOLS: Final = Path(__file__).with_name("tools.json")

#: The requests of the tour, and the rows of a model's answer, as an orchestrator sends them.
REQUESTS: Final[dict[str, Any]] = json.loads(
    Path(__file__).with_name("requests.json").read_text("utf-8")
)
OWNER: Final[str] = REQUESTS["question"]["owner_key"]

#: Seconds for which the inspector shows a build: longer than anyone keeps the demo open.
SHOWN_SECONDS: Final = 86_400.0
#: Seconds for the worker to stop.
STOP_SECONDS: Final = 10.0
#: Lines of the worker's log that are shown if it fails.
LOG_LINES: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The open parts that the tour uses."""

    bus: ConnectedBus
    client: ContextClient
    history: HistoryStore
    #: None for a bus in memory, on which the worker is in this process.
    worker: "WorkerProcess | None"
    #: The inspector's URL, if it is served.
    inspector: str | None = None


@asynccontextmanager
async def open_stage(folder: Path, *, in_memory: bool, serve: bool) -> AsyncIterator[Stage]:
    """Start bus, store and worker, with their files in a folder; raises `CommandError` on failure.

    With ``serve`` the worker serves the inspector, which shows all text.
    """
    port = _free_port() if serve else None
    values: dict[str, dict[str, object]] = {
        "bus": {"url": "memory://" if in_memory else None},
        "store": {"url": f"sqlite:///{folder / 'demo.db'}"},
        "tools": {"paths": [str(TOOLS)]},
        "health": {"port": None},  # another worker on this machine may use it
        "http": {"port": port, "content": "full"},
        "reports": {"ttl_seconds": SHOWN_SECONDS},
    }
    settings = Settings.model_validate(values)
    async with (
        open_stores(settings) as stores,
        open_bus(settings) as bus,
        connect_client(settings, bus.bus) as client,
    ):
        await stores.history.append(OWNER, read_history(HISTORY.read_bytes()).rows)
        inspector = f"http://127.0.0.1:{port}" if serve else None
        running: AbstractAsyncContextManager[WorkerProcess | None]
        if bus.url is None:
            running = _worker_in_process(settings, bus.bus)
        else:
            running = _worker_process({**values, "bus": {"url": bus.url}}, folder)
        async with running as worker:
            yield Stage(
                bus=bus, client=client, history=stores.history, worker=worker, inspector=inspector
            )


@asynccontextmanager
async def _worker_in_process(settings: Settings, bus: Bus) -> AsyncIterator[None]:
    """Run a worker on a bus in memory, which no other process reaches."""
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
        raise CommandError("the worker did not stop in time")


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker in a process of its own, as in production."""

    process: Process
    log: Path

    def check_running(self) -> None:
        """Raise `CommandError` if it has ended."""
        if self.process.returncode is not None:
            raise self.failure(f"ended with {self.process.returncode}")

    async def stop(self) -> None:
        """Stop it with SIGTERM; raises `CommandError` if it doesn't end cleanly.

        After Ctrl-C it may have ended already, since the terminal signals it too.
        """
        if self.process.returncode is None:
            self.process.terminate()
        try:
            code = await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
        except TimeoutError as error:
            raise self.failure("does not stop") from error
        if code != 0:
            raise self.failure(f"ended with {code}")

    def failure(self, what: str) -> CommandError:
        """Return an error with the end of the worker's log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return CommandError("\n".join([f"the worker {what}:", *lines[-LOG_LINES:]]))


@asynccontextmanager
async def _worker_process(
    settings: Mapping[str, object], folder: Path
) -> AsyncIterator[WorkerProcess]:
    """Run ``ctxb worker`` in a folder, until the context exits."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CTXB_")}
    # JSON is YAML; `$$` is a dollar sign
    (folder / DEFAULT_FILE).write_text(json.dumps(settings).replace("$", "$$"), encoding="utf-8")
    log = folder / "worker.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", cli.__name__, "worker"),
            cwd=folder,
            env=inherited,
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


def _free_port() -> int:
    """Return a port that no process of this machine listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
