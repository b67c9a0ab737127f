"""Pages of docs/ as somebody who follows them types them: files saved, commands run.

A comment before a block of code says what it is, where it isn't commands for a terminal:
``<!-- file: NAME -->`` is saved, ``<!-- terminal: NAME -->`` goes on while the others run, and
``<!-- not run: REASON -->`` is left out. ``<!-- until it says: WORDS -->`` is run again until then.
What is below a command is what it prints: ``…`` is anything within a line, or lines.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tomllib
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.commands import HUNG

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"^(?:<!-- ([a-z ]+): (.+?) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_EXPORT = re.compile(r"export (\w+)=(.+)")
#: The URL of a server that a worker started: on the page, and where it really is.
_URL = re.compile(r"redis://default:\S+?@127\.0\.0\.1:\d+/0")


@dataclass(frozen=True)
class Block:
    """A block of code, with what the comment before it says."""

    mark: str
    words: str
    language: str
    body: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield the commands of a terminal, each with what it prints."""
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            command = re.match(r"(?:.*\\\n)*.*\n", part)
            assert command is not None
            yield command[0].strip(), part[command.end() :]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [Block(*found) for found in _BLOCK.findall(text)]


def prints(shown: str, printed: str) -> bool:
    """Return whether what was printed is what a page shows; blank lines don't count."""
    lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.split("…"))) + "\n"
        for line in lines
    )
    reported = "".join(f"{line.rstrip()}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch(pattern, reported) is not None


class Reader:
    """Somebody who follows a page in a folder, with terminals of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        others = {name: value for name, value in os.environ.items() if not name.startswith("CTXB_")}
        self.environment = {
            **others,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            # other workers of this machine may have the default
            "CTXB_HEALTH__PORT": "0",
            "NO_COLOR": "1",
            "COLUMNS": "80",
            "FAKETTY": "1",  # redis-cli prints for people
        }
        self._url = ""
        self._terminals: list[Process] = []

    async def follow(self, page: str) -> None:
        """Do what a page says, block by block."""
        for block in blocks_of(page):
            if block.mark == "file":
                self.save(block.words, block.body)
            elif block.mark == "terminal":
                ((command, shown),) = block.commands()
                await self._begin(command, shown)
            elif block.language == "console" and block.mark != "not run":
                await self._type(block)

    def save(self, name: str, text: str) -> None:
        """Save a file; a package is as good as installed, by its entry points."""
        (self.folder / name).write_text(text, encoding="utf-8")
        if name == "pyproject.toml":
            project = tomllib.loads(text)["project"]
            installed = self.folder / f"{project['name'].replace('-', '_')}-1.dist-info"
            installed.mkdir()
            installed.joinpath("METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
                encoding="utf-8",
            )
            installed.joinpath("entry_points.txt").write_text(
                _points(project["entry-points"]), encoding="utf-8"
            )

    async def _type(self, block: Block) -> None:
        for command, shown in block.commands():
            typed = _URL.sub(self._url, command)
            if export := _EXPORT.fullmatch(typed):
                self.environment[export[1]] = await self._run(f"printf %s {export[2]}")
                continue
            printed = await self._run(typed)
            async with asyncio.timeout(HUNG):
                while block.mark == "until it says" and block.words not in printed:
                    printed = await self._run(typed)
            assert prints(shown, printed), f"{command}\nprinted\n{printed}"

    async def _run(self, command: str) -> str:
        """Run a command to its end; returns what it printed."""
        process = await self._start(command)
        async with asyncio.timeout(HUNG):
            out, err = await process.communicate()
        assert process.returncode in (0, 7), f"{command}\n{err.decode()}"  # 7: two builds differ
        return out.decode()

    async def _begin(self, command: str, shown: str) -> None:
        """Start a command that goes on, and wait until it has printed what the page shows."""
        process = await self._start(command, stderr=STDOUT)
        self._terminals.append(process)
        assert process.stdout is not None
        printed = ""
        async with asyncio.timeout(HUNG):
            while not prints(shown, _URL.sub(_shown_url(shown), printed)):
                line = await process.stdout.readline()
                assert line, f"{command} ended:\n{printed}"
                printed += line.decode()
        self._url = _shown_url(printed)

    async def _start(self, command: str, stderr: int = PIPE) -> Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", command),
            cwd=self.folder,
            env=self.environment,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stderr,
            start_new_session=True,
        )

    async def close(self) -> None:
        """Stop what goes on."""
        for process in self._terminals:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    async with asyncio.timeout(HUNG):
                        await process.communicate()
                except TimeoutError:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise


def _shown_url(shown: str) -> str:
    found = _URL.search(shown)
    assert found is not None, "the page shows no URL of the server"
    return found[0]


def _points(groups: Mapping[str, Mapping[str, str]]) -> str:
    """Return entry points as the file of an installed package has them."""
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in groups.items()
    )


@asynccontextmanager
async def reading(folder: Path) -> AsyncIterator[Reader]:
    """Give a reader our programs, and the conversation and the client that pages use."""
    (folder / "bin").mkdir()
    for name, module in (("ctxb", "-m service.cli"), ("python3", "")):
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', "utf-8")
        program.chmod(0o755)
    history = ROOT / "service" / "cli" / "demo" / "history.json"
    (folder / "weekend.json").write_bytes(history.read_bytes())
    shutil.copy(ROOT / "examples" / "clients" / "ask.py", folder)
    reader = Reader(folder)
    try:
        yield reader
    finally:
        await reader.close()
