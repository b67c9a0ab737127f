"""Processes of the benchmark: started, watched by what the kernel says of them, stopped by id."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

#: Seconds within which a process must say that it is ready, and within which it must end.
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


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
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} ended before it was ready")
        yield process, line.decode().strip()
    finally:
        await _stopped(process)


async def _stopped(process: Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU that a process has used, in user and system mode, with all its threads."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
