"""Commands in processes of their own, which end with the test."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

#: The command as it is installed beside this Python.
CTXB = str(Path(sys.executable).with_name("ctxb"))


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @classmethod
    async def of(
        cls, *command: str, environment: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> "Finished":
        """Run a command to its end."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
        )
        stdout, stderr = await process.communicate(stdin)
        assert process.returncode is not None
        return cls(process.returncode, stdout.decode(), stderr.decode())


@asynccontextmanager
async def running(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> AsyncIterator[list[Process]]:
    """Run commands while the context lasts; what is left of them then is killed."""
    processes = [
        await asyncio.create_subprocess_exec(*command, env=environment) for command in commands
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
