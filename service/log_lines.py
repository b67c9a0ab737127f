"""Lines of log on their way to a file: written together, none of them late."""

import sys
import threading
import weakref
from asyncio import AbstractEventLoop, get_running_loop
from contextlib import suppress
from typing import Final, TextIO

#: Characters that are written together: of ASCII, Linux lets so many reach a pipe in one piece,
#: whoever else writes there (`PIPE_BUF`).
_ONE_PIECE: Final = 4096


class Lines:
    """A file to which the lines of one turn of the event loop go together, as it ends.

    A process that is killed loses those of the turn in which it was, and no earlier ones. Lines
    that can't be written are given up, as the standard library does.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        # taken again where the garbage collector, in the middle of a write, ends what logs its end
        self._lock = threading.RLock()
        self._waiting: list[str] = []
        self._size = 0
        #: The loop that will write what waits when its turn is over.
        self._loop: AbstractEventLoop | None = None
        # as the process ends, no loop is left to do it
        weakref.finalize(self, _write, file, self._waiting)

    def write(self, line: str) -> None:
        """Take a line, to be written when `flush` is called."""
        with self._lock:
            self._size += len(line)
            if self._size > _ONE_PIECE:
                _write(self._file, self._waiting)
                self._size = len(line)
            self._waiting.append(line)

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            self._loop = None
            _write(self._file, self._waiting)
            self._size = 0

    def flush_soon(self) -> None:
        """Write what waits when the turn of the event loop is over; without one, now."""
        try:
            loop = get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if self._loop is not loop:
            self._loop = loop
            loop.call_soon(self.flush)


def _write(file: TextIO, lines: list[str]) -> None:
    """Write lines and forget them."""
    text = "".join(lines)
    lines.clear()
    with suppress(OSError, ValueError):  # whoever read it may be gone
        file.write(text)
        file.flush()


class Logger:
    """Writes lines: at once where they tell of something wrong, else with others."""

    __slots__ = ("_lines", "name")

    def __init__(self, name: str, lines: Lines) -> None:
        self.name = name
        self._lines = lines

    def info(self, line: str) -> None:
        """Write a line soon."""
        self._lines.write(line + "\n")
        self._lines.flush_soon()

    def warning(self, line: str) -> None:
        """Write a line now."""
        self._lines.write(line + "\n")
        self._lines.flush()

    debug = info
    error = critical = warning


class Loggers:
    """Gives each module its logger; named for whoever asks, where no name is given."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._known: dict[str, Logger] = {}

    def __call__(self, *names: str) -> Logger:
        """Return the logger of a name."""
        name = names[0] if names else _asking_module()
        if name not in self._known:
            self._known[name] = Logger(name, self._lines)
        return self._known[name]


def _asking_module() -> str:
    """Return the name of the module whose code led to a logger: the first that is not structlog."""
    frame = sys._getframe(2)  # noqa: SLF001 - no other way is as cheap
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("structlog"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))
