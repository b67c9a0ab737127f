"""Start processes for benchmarks, read their resource use from the kernel, and stop them by id.

The figures come from ``/proc``, which only Linux has.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Seconds after which a process that does not start or end counts as hung.
HUNG_SECONDS: Final = 60.0

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process holds."""

    #: Bytes of memory: now, and at most so far.
    rss: int
    peak: int
    #: Open files, sockets among them.
    files: int


@asynccontextmanager
async def started(module: str, *arguments: str, given: str) -> AsyncIterator[tuple[Process, str]]:
    """Run a module of this project while the context lasts; gives the first line that it prints.

    ``given`` is the line that it gets on stdin.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError(f"{module} has no pipes")
        process.stdin.write(given.encode() + b"\n")
        async with asyncio.timeout(HUNG_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} ended before it was ready")
        yield process, line.decode().strip()
    finally:
        await _surely_stopped(process)


async def stopped(process: Process) -> int:
    """Ask a process to end; returns its exit code, and raises `TimeoutError` where it hangs."""
    process.terminate()
    async with asyncio.timeout(HUNG_SECONDS):
        return await process.wait()


async def killed(process: Process) -> None:
    """End a process without a warning."""
    process.kill()
    await process.wait()


async def _surely_stopped(process: Process) -> None:
    if process.returncode is not None:
        return
    try:
        await stopped(process)
    except TimeoutError:
        await killed(process)


def cpu_seconds(pid: int) -> float:
    """Return the CPU that a process has used, in user and system mode, with all its threads."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS


def state(pid: int) -> str:
    """Return the state of a process as one letter: ``T`` is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def usage(pid: int) -> Usage:
    """Return the memory and files of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = dict(line.split(":", 1) for line in status.splitlines())
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Usage(rss=_bytes(found["VmRSS"]), peak=_bytes(found["VmHWM"]), files=files)


def _bytes(field: str) -> int:
    kilobytes, _ = field.split()
    return int(kilobytes) * 1024
