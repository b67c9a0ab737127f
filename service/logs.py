"""Logs: one pipe for our own and for libraries', in which people's words and secrets stay out."""

import hashlib
import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from service.config.masking import MASK, mask_urls
from service.log_lines import Lines, Loggers
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
    place = ids()
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
