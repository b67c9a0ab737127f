"""Logs: one pipe for our own and for libraries', in which people's words and secrets stay out."""

import hashlib
import logging
import re
import sys
from collections.abc import Mapping

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from service.config.masking import MASK, mask_urls

#: Fields that hold people's words, at any depth.
CONTENT_FIELDS = frozenset({"content", "text", "payload", "messages", "input"})

#: Libraries whose news are no news to who runs the service; that of openai is what people said.
CHATTY = ("alembic", "aiosqlite", "asyncio", "openai", "httpx2", "httpcore2")

#: Fields whose name ends like this hold a secret.
SECRET_FIELD = re.compile(
    r"(?:password|passwd|secret|token|credentials?|authorization|cookie"
    r"|(?:api|access|secret|private)[_-]?key)$",
    re.IGNORECASE,
)


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
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*before, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                Redactor(content=content),
                _renderer(format, colors=colors),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
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


def owner_hash(owner_key: object) -> str:
    """Return what stands for an owner in logs: 12 hex digits of the key's SHA-256."""
    return hashlib.sha256(str(owner_key).encode("utf-8", "surrogatepass")).hexdigest()[:12]


class Redactor:
    """Takes out of an event what must not be logged; a processor of structlog."""

    def __init__(self, *, content: bool) -> None:
        self._content = content

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event without people's words (unless they are let through) and secrets."""
        return self._mapping(event)

    def _mapping(self, fields: Mapping[str, object]) -> dict[str, object]:
        result: dict[str, object] = {}
        for name, value in ((str(key), value) for key, value in fields.items()):
            if name == "owner_key":
                result["owner"] = owner_hash(value)
            elif SECRET_FIELD.search(name):
                result[name] = MASK
            elif self._content or name not in CONTENT_FIELDS:
                result[name] = self._value(value)
        return result

    def _value(self, value: object) -> object:
        match value:
            case None | bool() | int() | float():
                return value
            case Mapping():
                return self._mapping(value)
            case list() | tuple() | set() | frozenset():
                return [self._value(item) for item in value]
            case _:
                # an exception's text, too, may quote a URL
                return mask_urls(str(value))


def _renderer(chosen: str, *, colors: bool) -> Processor:
    terminal = sys.stderr.isatty()
    if chosen == "console" or (chosen == "auto" and terminal):
        # plain: other formatters show local variables, and with them what people said
        plain = structlog.dev.plain_traceback
        return structlog.dev.ConsoleRenderer(colors=terminal and colors, exception_formatter=plain)
    return structlog.processors.JSONRenderer()
