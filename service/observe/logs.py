"""Logs: one pipe for our own and for libraries', in which people's words and secrets stay out."""

import hashlib
import json
import logging
import re
import sys
import threading
import weakref
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from service.observe.tracing import current_ids

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


MASK = "***"

# To the last @ of the URL: a password may hold one, or a slash, without being encoded. What looks
# like a port is none; the length keeps the search linear.
_PASSWORD = re.compile(r"(://[^\s/:@]*:)(?!\d+(?:[/?#\s]|$))[^\s\"'<>]{1,512}@")
_PARAMETER = re.compile(r"([?&](?:password|passwd|secret|token|api_?key)=)[^\s&#]+", re.IGNORECASE)


def mask_urls(text: str) -> str:
    """Return the text with the passwords of the URLs in it masked."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1{MASK}@", text))


#: Fields that hold people's words, at any depth.
CONTENT_FIELDS = frozenset({"content", "text", "payload", "messages", "input"})

#: Libraries whose news are no news to who runs the service; that of openai is what people said.
CHATTY = ("alembic", "aiosqlite", "asyncio", "openai", "httpx2", "httpcore2")

#: Libraries that quote what strangers sent, in errors that we tell of in our own words.
QUOTING = ("mcp", "opentelemetry.trace")

#: Fields whose name ends like this hold a secret.
SECRET_FIELD = re.compile(
    r"(?:password|passwd|secret|token|credentials?|authorization|cookie"
    r"|(?:api|access|secret|private)[_-]?key)$",
    re.IGNORECASE,
)


#: What becomes of a field, by its name.
_SHOWN, _WORDS, _MASKED, _HASHED = "shown", "words", "masked", "hashed"

#: Types of values that hold no words.
_PLAIN = frozenset({int, float, bool, type(None)})

#: Names of fields of which it is remembered what becomes of them.
_NAMES: Final = 1024


def configure_logging(
    level: str = "info",
    format: str = "auto",  # noqa: A002 - the setting's name
    *,
    content: bool = False,
    colors: bool = True,
) -> None:
    """Send all logs of this process to stderr, those of the standard library's loggers included.

    ``format`` is ``json``, ``console`` or ``auto``: console where stderr is a terminal.
    ``content`` lets the fields through that hold people's words. ``colors`` hold for terminals.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _with_trace,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
    ]
    after: list[Processor] = [
        structlog.processors.format_exc_info,
        Redactor(content=content),
        *_rendering(format, colors=colors),
    ]
    lines = Lines(sys.stderr)
    # past the standard library, whose records cost more than all the rest of a line
    structlog.configure(
        processors=[*before, *after],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=Loggers(lines),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*before, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *after],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for library in QUOTING:
        logging.getLogger(library).setLevel(logging.CRITICAL)
    for library in CHATTY:
        logging.getLogger(library).setLevel(max(threshold, logging.WARNING))


def keep_to_stderr() -> None:
    """Send warnings to stderr in a program that has configured no logs with structlog.

    Without that, structlog prints everything to stdout, between the program's own output.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            Redactor(content=False),
            *_rendering("auto", colors=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _with_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name the trace and the span that a line was written in, where there are any."""
    place = current_ids()
    if place is not None:
        event["trace_id"], event["span_id"] = place
    return event


def owner_hash(owner_key: object) -> str:
    """Return what stands for an owner in logs: 12 hex digits of the key's SHA-256."""
    return hashlib.sha256(str(owner_key).encode("utf-8", "surrogatepass")).hexdigest()[:12]


class Redactor:
    """Takes out of an event what must not be logged; a processor of structlog."""

    def __init__(self, *, content: bool) -> None:
        self._content = content
        #: Names of fields that hold neither words nor secrets.
        self._harmless: set[str] = set()

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event without people's words (unless they are let through) and secrets."""
        return self._mapping(event)

    def _mapping(self, fields: Mapping[str, object]) -> dict[str, object]:
        result: dict[str, object] = {}
        for name, value in fields.items():
            plain = type(value) in _PLAIN or (type(value) is str and "://" not in value)
            if plain and name in self._harmless:
                result[name] = value
            else:
                self._add(result, str(name), value)
        return result

    def _add(self, result: dict[str, object], name: str, value: object) -> None:
        treatment = _treatment(name)
        if treatment == _HASHED:
            result["owner"] = owner_hash(value)
        elif treatment == _MASKED:
            result[name] = MASK
        elif treatment == _SHOWN or self._content:
            result[name] = self._value(value)
            if len(self._harmless) < _NAMES:
                self._harmless.add(name)

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return mask_urls(str(value))
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._value(item) for item in value]
        if isinstance(value, Mapping):  # takes longest to find out
            return self._mapping(value)
        # an exception's text, too, may quote a URL
        return mask_urls(str(value))


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Write a line with its time, in ASCII, so that nothing in it can move a terminal's cursor."""
    event["timestamp"] = datetime.now(UTC)
    try:
        line = orjson.dumps(event, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        return _ENCODER.encode(event)
    return line.decode() if line.isascii() and b"\x7f" not in line else _ENCODER.encode(event)


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


#: For lines that orjson doesn't write; but for the time, what is redacted holds nothing that JSON
#: doesn't know.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), default=_iso)


@lru_cache(maxsize=_NAMES)  # the same few names come with every line
def _treatment(name: str) -> str:
    if name == "owner_key":
        return _HASHED
    if SECRET_FIELD.search(name):
        return _MASKED
    return _WORDS if name in CONTENT_FIELDS else _SHOWN


def _rendering(chosen: str, *, colors: bool) -> list[Processor]:
    """Return what makes a line of an event, with its time."""
    terminal = sys.stderr.isatty()
    if chosen == "console" or (chosen == "auto" and terminal):
        # plain: other formatters show local variables, and with them what people said
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(
            colors=terminal and colors, exception_formatter=plain
        )
        return [structlog.processors.TimeStamper(fmt="iso", utc=True), console]
    return [_json]
