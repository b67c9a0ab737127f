"""Trace a plain request through the service's files, from its bytes to the answer.

    python -m bench.path [--json]

A worker runs in this process on a real server, with SQLite and 20 stored rows. Its third request
and the two after it are traced, in all threads, and the shortest path counts. `README.md` in this
folder explains the keys.
"""

import argparse
import asyncio
import contextlib
import io
import json
import sys
import tempfile
import threading
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from redis.asyncio import Redis

from bench.conversation import QUESTION, conversation
from bench.names import STREAM
from bench.servers import running_server
from service.app import open_builder, open_bus, open_worker
from service.config.settings import Settings
from service.observe.logs import configure_logging

ROOT: Final = Path(__file__).resolve().parents[1]
#: The packages of the product.
PRODUCT: Final = ("service", "formatters", "prompts")
#: Messages of each owner's history; every request is another owner's.
STORED: Final = 20
#: Requests before the traced one, which fill caches and open connections.
WARM_UP: Final = 2
#: Traced requests, of which one counts: the others may have met what happens now and then.
TRACED: Final = 3
#: Seconds that an answer may take; nothing is measured by them.
PATIENCE: Final = 60
#: Seconds in which the worker ends what follows an answer, and reads again.
SETTLE: Final = 0.3

#: Visits by file, in the order of the first one.
Visited = dict[str, "Visits"]
Tracer = Callable[[FrameType, str, Any], Any]


@dataclass(slots=True)
class Visits:
    """What was executed of one file."""

    calls: int = 0
    lines: set[int] = field(default_factory=set)


class Recorder:
    """Records calls and lines of files in some folders, between two messages on the wire.

    It begins when asyncio hands over bytes with ``first`` in them, and ends when asyncio is given
    bytes with ``last`` in them to send. A coroutine that goes on after it waited is a call too, as
    `sys.setprofile` counts it.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(f"{folder}/" for folder in folders)
        self._first = self._last = b""
        self._recording = False
        #: Whether the end was reached.
        self.complete = False
        self.visits: Visited = {}

    def expect(self, first: bytes, last: bytes) -> None:
        """Forget what was recorded, and wait for the next message."""
        self._first, self._last = first, last
        self.complete, self.visits = False, {}

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Tracer | None:
        """Be the tracing function of a thread."""
        code = frame.f_code
        if not self._recording:
            if self._first and code.co_name == "data_received" and _brings(frame, self._first):
                self._recording = not self.complete
            return None
        if code.co_name in {"write", "writelines"} and _brings(frame, self._last):
            self._recording, self.complete = False, True
            return None
        if not code.co_filename.startswith(self._folders):
            return None
        visits = self.visits.setdefault(code.co_filename, Visits())
        visits.calls += 1
        if frame.f_lineno != code.co_firstlineno:  # a coroutine goes on in this line
            visits.lines.add(frame.f_lineno)
        return self._lines

    def _lines(self, frame: FrameType, event: str, _argument: object) -> Tracer | None:
        if not self._recording:
            return None
        if event == "line":
            self.visits[frame.f_code.co_filename].lines.add(frame.f_lineno)
        return self._lines


def _brings(frame: FrameType, marker: bytes) -> bool:
    """Return whether bytes with the marker in them are an argument of a call."""
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        value = frame.f_locals.get(name)
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, bytes | bytearray) and marker in part for part in parts):
            return True
    return False


@asynccontextmanager
async def _running_worker(folder: Path) -> AsyncIterator[Redis]:
    """Run a worker over a stored history while the context lasts; gives a client of its bus."""
    async with running_server(folder / "server") as server, Redis.from_url(server.url) as client:
        settings = Settings.model_validate(
            {
                "bus": {"url": server.url},
                "store": {"url": f"sqlite:///{folder / 'history.db'}"},
                "budget": {"strategy": "oldest_first"},
            }
        )
        async with open_builder(settings) as builder:
            for number in range(WARM_UP + TRACED):
                await builder.history.append(f"owner-{number}", conversation(STORED))
        stop = asyncio.Event()
        async with (
            open_bus(settings) as connected,
            open_worker(settings, connected.bus) as worker,
            asyncio.TaskGroup() as tasks,
        ):
            running = tasks.create_task(worker.run(stop))
            try:
                yield client
            finally:
                stop.set()
                await running


async def _answered(client: Redis, number: int, recorder: Recorder) -> None:
    """Send a request and wait for its answer; what it passes is recorded.

    Raises:
        RuntimeError: No answer comes, or it is an error.
    """
    name = f"path-{number}"
    reply_to = f"context.reply.{name}"
    request = {
        "id": name,
        "owner_key": f"owner-{number}",
        "content": {"current_input": QUESTION, "context": {"strategy": "oldest_first"}},
        "metadata": {"reply_to": reply_to, "reply_kind": "list"},
    }
    # before the request is sent: nobody but the worker may name the list after that
    waiting = asyncio.create_task(_received(client, reply_to))
    await asyncio.sleep(SETTLE)
    recorder.expect(f'"{name}"'.encode(), reply_to.encode())
    await client.xadd(STREAM, {"data": json.dumps(request)})
    reply = await waiting
    if reply is None or json.loads(reply)["content"]["status"] != "success":
        raise RuntimeError(f"the request is not answered: {reply!r}")
    if not recorder.complete:
        raise RuntimeError("the answer was not seen on its way out")


async def _received(client: Redis, name: str) -> bytes | None:
    """Wait for the first item of a list, and take it."""
    item: Any = await client.blpop([name], timeout=PATIENCE)
    return bytes(item[1]) if item else None


async def shortest_path(folder: Path) -> Visited:
    """Return what a request of a warm worker passes, with the least that happens next to it."""
    recorder = Recorder(ROOT / name for name in PRODUCT)
    threading.settrace(recorder.trace)  # before any thread is started
    sys.settrace(recorder.trace)
    paths: list[Visited] = []
    try:
        async with _running_worker(folder) as client:
            for number in range(WARM_UP + TRACED):
                await _answered(client, number, recorder)
                paths.append(recorder.visits)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return min(paths[WARM_UP:], key=lambda path: (len(path), _calls(path)))


def figures(visited: Visited, root: Path) -> dict[str, int]:
    """Return the figures of a path, and those of the product in a folder."""
    modules = [path for name in PRODUCT for path in (root / name).rglob("*.py")]
    return {
        "files": len(visited),
        "calls": _calls(visited),
        "lines": sum(len(visits.lines) for visits in visited.values()),
        "flat_modules": len([*(root / "service").glob("*.py")]) - 1,
        "product_files": len(modules),
        "product_lines": sum(len(path.read_bytes().splitlines()) for path in modules),
        "import_floors": _floors(root / "pyproject.toml"),
    }


def _calls(visited: Visited) -> int:
    return sum(visits.calls for visits in visited.values())


def _floors(pyproject: Path) -> int:
    """Return how many layers `service` has, as import-linter checks them."""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["service"])
    return len(layers)


def table(visited: Visited, root: Path) -> Iterator[str]:
    """Yield a line for each file, in the order of the first visit."""
    yield f"{'':>3}  {'file':<50}{'calls':>7}{'lines':>7}"
    for number, (name, visits) in enumerate(visited.items(), start=1):
        file = Path(name).relative_to(root)
        yield f"{number:>3}  {file!s:<50}{visits.calls:>7}{len(visits.lines):>7}"


def main() -> None:
    """Trace, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="path-") as folder,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        configure_logging()  # as `ctxb worker` does
        visited = asyncio.run(shortest_path(Path(folder)))
    result = figures(visited, ROOT)
    if options.json:
        print(json.dumps(result))
        return
    print("\n".join([*table(visited, ROOT), ""]))
    print("\n".join(f"{key:<20}{value:>8,}" for key, value in result.items()))


if __name__ == "__main__":
    main()
