"""Logs: one pipe for our own and for libraries', in which people's words and secrets stay out."""

import hashlib
import json
import logging
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from service.config.masking import MASK, mask_urls
from service.tracing import ids

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

#: For lines that orjson doesn't write; what is redacted holds nothing that JSON doesn't know.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


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
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    after: list[Processor] = [
        structlog.processors.format_exc_info,
        Redactor(content=content),
        _renderer(format, colors=colors),
    ]
    # past the standard library, whose records cost more than all the rest of a line
    structlog.configure(
        processors=[*before, *after],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_Loggers(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
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
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            Redactor(content=False),
            _renderer("auto", colors=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _with_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name the trace and the span that a line was written in, where there are any."""
    place = ids()
    if place is not None:
        event["trace_id"], event["span_id"] = place
    return event


def owner_hash(owner_key: object) -> str:
    """Return what stands for an owner in logs: 12 hex digits of the key's SHA-256."""
    return hashlib.sha256(str(owner_key).encode("utf-8", "surrogatepass")).hexdigest()[:12]


class _Logger:
    """Writes lines; one that can't be written is given up, as the standard library does."""

    __slots__ = ("_file", "_lock", "name")

    def __init__(self, name: str, file: TextIO, lock: threading.Lock) -> None:
        self.name = name
        self._file = file
        self._lock = lock

    def msg(self, line: str) -> None:
        """Write a line."""
        with self._lock, suppress(OSError, ValueError):  # whoever read it may be gone
            self._file.write(line + "\n")
            self._file.flush()

    debug = info = warning = error = critical = msg


class _Loggers:
    """Gives each module its logger; named for whoever asks, where no name is given."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._known: dict[str, _Logger] = {}

    def __call__(self, *names: str) -> _Logger:
        name = names[0] if names else _asking_module()
        if name not in self._known:
            self._known[name] = _Logger(name, self._file, self._lock)
        return self._known[name]


def _asking_module() -> str:
    """Return the name of the module whose code led to a logger: the first that is not structlog."""
    frame = sys._getframe(2)  # noqa: SLF001 - no other way is as cheap
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("structlog"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


class Redactor:
    """Takes out of an event what must not be logged; a processor of structlog."""

    def __init__(self, *, content: bool) -> None:
        self._content = content

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event without people's words (unless they are let through) and secrets."""
        return self._mapping(event)

    def _mapping(self, fields: Mapping[str, object]) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, value in fields.items():
            name = str(key)
            treatment = _treatment(name)
            if treatment == _SHOWN or (treatment == _WORDS and self._content):
                # most values hold neither words nor a URL
                shown = type(value) in _PLAIN or (isinstance(value, str) and "://" not in value)
                result[name] = value if shown else self._value(value)
            elif treatment == _HASHED:
                result["owner"] = owner_hash(value)
            elif treatment == _MASKED:
                result[name] = MASK
        return result

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
    """Write a line in ASCII, so that nothing in it can move a terminal's cursor."""
    try:
        line = orjson.dumps(event)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        return _ENCODER.encode(event)
    return line.decode() if line.isascii() and b"\x7f" not in line else _ENCODER.encode(event)


@lru_cache(maxsize=1024)  # the same few names come with every line
def _treatment(name: str) -> str:
    if name == "owner_key":
        return _HASHED
    if SECRET_FIELD.search(name):
        return _MASKED
    return _WORDS if name in CONTENT_FIELDS else _SHOWN


def _renderer(chosen: str, *, colors: bool) -> Processor:
    terminal = sys.stderr.isatty()
    if chosen == "console" or (chosen == "auto" and terminal):
        # plain: other formatters show local variables, and with them what people said
        plain = structlog.dev.plain_traceback
        return structlog.dev.ConsoleRenderer(colors=terminal and colors, exception_formatter=plain)
    return _json
