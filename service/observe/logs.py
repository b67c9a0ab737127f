"""Logs: one pipeline for the service and its libraries, which removes user content and secrets."""

import hashlib
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from service.observe.tracing import current_ids

MASK = "***"

# Up to the last @ of the URL, since a password may contain @ or / unencoded; a port isn't a
# password. The limited length keeps the search linear.
_PASSWORD = re.compile(r"(://[^\s/:@]*:)(?!\d+(?:[/?#\s]|$))[^\s\"'<>]{1,512}@")
_PARAMETER = re.compile(r"([?&](?:password|passwd|secret|token|api_?key)=)[^\s&#]+", re.IGNORECASE)


def mask_urls(text: str) -> str:
    """Return a text with the passwords in its URLs masked."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1{MASK}@", text))


#: Fields with user content, at any depth.
CONTENT_FIELDS = frozenset({"content", "text", "payload", "messages", "input"})

#: Libraries whose info lines are noise, or contain user content (openai).
CHATTY = ("alembic", "aiosqlite", "asyncio", "openai", "httpx2", "httpcore2")

#: Libraries whose errors quote untrusted input; the service logs these errors itself.
QUOTING = ("mcp", "opentelemetry.trace")

#: Suffixes of the names of fields with secrets.
SECRET_FIELD = re.compile(
    r"(?:password|passwd|secret|token|credentials?|authorization|cookie"
    r"|(?:api|access|secret|private)[_-]?key)$",
    re.IGNORECASE,
)


#: How a field is treated, by its name.
_SHOWN, _CONTENT, _MASKED, _HASHED = "shown", "content", "masked", "hashed"

#: Types of the values that are never redacted, which most values have.
_PLAIN = frozenset({int, float, bool, type(None)})


class StderrLogger:
    """Writes lines to stderr under the name of a module; drops those that can't be written."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._file = sys.stderr

    def write(self, line: str) -> None:
        """Write a line."""
        try:
            self._file.write(f"{line}\n")
            self._file.flush()
        except (OSError, ValueError):  # the reader of a pipe may be gone
            return

    debug = info = warning = error = critical = write


def configure_logging(
    level: str = "info",
    format: str = "auto",  # noqa: A002 - the setting's name
    *,
    content: bool = False,
    colors: bool = True,
) -> None:
    """Send all logs of the process to stderr, including those of the standard library's loggers.

    ``format`` is ``json``, ``console`` or ``auto``: ``console`` if stderr is a terminal.
    ``content`` logs user content too. ``colors`` apply to terminals.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    after: list[Processor] = [Redactor(content=content), *_rendering(format, colors=colors)]
    _configure_structlog(threshold, after)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_BEFORE, structlog.stdlib.ExtraAdder()],
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
    """Send warnings to stderr, unless the program has configured structlog.

    By default, structlog would print everything to stdout, between the program's own output.
    """
    if not structlog.is_configured():
        after: list[Processor] = [Redactor(content=False), *_rendering("auto", colors=True)]
        _configure_structlog(logging.WARNING, after)


def _configure_structlog(threshold: int, after: Sequence[Processor]) -> None:
    # not through the standard library, whose records cost more than the rest of a line
    structlog.configure(
        processors=[*_BEFORE, *after],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=StderrLogger,
        cache_logger_on_first_use=False,
    )


def _with_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the current trace and span, if any."""
    span = current_ids()
    if span is not None:
        event["trace_id"], event["span_id"] = span
    return event


#: The processors before the redaction of an event.
_BEFORE: Final[Sequence[Processor]] = (
    structlog.contextvars.merge_contextvars,
    _with_trace,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.format_exc_info,
)


def owner_hash(owner_key: object) -> str:
    """Return the pseudonym of an owner in logs: 12 hex digits of the key's SHA-256."""
    return hashlib.sha256(str(owner_key).encode("utf-8", "surrogatepass")).hexdigest()[:12]


class Redactor:
    """A processor of structlog that removes user content and secrets from events."""

    def __init__(self, *, content: bool) -> None:
        self._content = content

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event without secrets and, unless allowed, without user content."""
        return self._mapping(event)

    def _mapping(self, fields: Mapping[str, object]) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, value in fields.items():
            name = str(key)
            treatment = _treatment(name)
            if treatment == _SHOWN or (treatment == _CONTENT and self._content):
                # as for most values, without a call
                is_plain = type(value) in _PLAIN or (type(value) is str and "://" not in value)
                result[name] = value if is_plain else self._value(value)
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
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._value(item) for item in value]
        if isinstance(value, (dict, Mapping)):  # the check for a `Mapping` is slow
            return self._mapping(value)
        # the text of an exception may contain a URL
        return mask_urls(str(value))


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Render a line with its time, in ASCII, so that it can't control a terminal."""
    event["timestamp"] = datetime.now(UTC)
    try:
        line = orjson.dumps(event, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        return _ENCODER.encode(event)
    return line.decode() if line.isascii() and b"\x7f" not in line else _ENCODER.encode(event)


#: For events that orjson refuses; redacted values are plain JSON, except for the time.
_ENCODER: Final = json.JSONEncoder(
    separators=(",", ":"), default=lambda at: at.isoformat().replace("+00:00", "Z")
)


@lru_cache(maxsize=1024)  # each line has the same few names
def _treatment(name: str) -> str:
    if name == "owner_key":
        return _HASHED
    if SECRET_FIELD.search(name):
        return _MASKED
    return _CONTENT if name in CONTENT_FIELDS else _SHOWN


def _rendering(chosen: str, *, colors: bool) -> list[Processor]:
    """Return the processors that render an event as a line with its time."""
    terminal = sys.stderr.isatty()
    if chosen == "console" or (chosen == "auto" and terminal):
        # other formatters show local variables, which may hold user content
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(
            colors=terminal and colors, exception_formatter=plain
        )
        return [structlog.processors.TimeStamper(fmt="iso", utc=True), console]
    return [_json]
