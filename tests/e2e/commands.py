"""Commands of ``ctxb`` in a folder, and workers that report when they have started."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

#: Seconds after which a process counts as hung; only a failing test waits so long.
HUNG = 120


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


@dataclass
class RunningWorker:
    """A worker that has started, with what it says."""

    process: Process
    said: list[str] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        """Read what it says until it ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode())
            if "worker.started" in self.said[-1]:
                self.started.set()
        self.started.set()

    async def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        async with asyncio.timeout(HUNG):
            return await self.process.wait()


class Ctxb:
    """Runs commands in a folder, with variables of ours alone."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        ours = ("CTXB_", "OTEL_")
        others = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.folder = folder
        self.environment = {**others, **environment}

    async def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Finished:
        """Run a command to its end; keywords are further variables."""
        process = await self.start(*arguments, **variables)
        async with asyncio.timeout(HUNG):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    async def start(self, *arguments: str, **variables: str) -> Process:
        """Start a command."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.cli", *arguments),
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )

    @asynccontextmanager
    async def worker(self, *options: str, **variables: str) -> AsyncIterator[RunningWorker]:
        """Run a worker; it takes requests when the context is entered, and has ended after it."""
        process = await self.start("worker", *options, **variables)
        worker = RunningWorker(process)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.listen())
            try:
                async with asyncio.timeout(HUNG):
                    await worker.started.wait()
                assert process.returncode is None, "".join(worker.said)
                yield worker
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
