"""What tests share that is no fixture."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest
import structlog

from formatters.model import Row, Tool
from prompts.system_prompt import SystemPrompt
from service.builder import ContextBuilder
from service.compaction.compactor import Compactor, find_compactor
from service.config.settings import BusSettings
from service.errors import StoreError
from service.http.prometheus import METRICS
from service.observe.metrics import Event, Metrics, Sizes, Stage
from service.ports.stores import ArchivedRow, Archiving, HistoryPage, HistoryStats, SearchRequest
from service.wire.request import BuildRequest
from service.worker.recorder import Recorder
from service.worker.runner import every, repeat_with_backoff

#: The fixed time of the tests' clocks.
NOW = datetime(2025, 12, 10, 8, 0, tzinfo=UTC)

SEARCH: Tool = {
    "type": "function",
    "function": {
        "name": "web_search",
        "description": "Search the web for information",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The search query"}},
            "required": ["query"],
        },
    },
}

MakeBuilder = Callable[..., ContextBuilder]
MakeRequest = Callable[..., BuildRequest]


def row(number: int, role: str, content: Any, **fields: Any) -> Row:
    """Return a row of history, a minute after the one numbered before it."""
    return {
        "id": f"m{number}",
        "run_id": f"r{number}",
        "role": role,
        "content": content,
        "timestamp": f"2025-12-09T{number // 60:02}:{number % 60:02}:00Z",
        "metadata": {},
        **fields,
    }


class BrokenHistory:
    """A history that fails, or never answers."""

    def __init__(self, *, hangs: bool = False) -> None:
        self._hangs = hangs

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Fail."""
        raise StoreError("down")

    async def recent(self, *_args: object, **_options: object) -> HistoryPage:
        """Fail, or wait for ever."""
        if self._hangs:
            await asyncio.Event().wait()
        raise StoreError("down")

    async def search(
        self, owner_key: str, conversation_id: str | None, request: SearchRequest
    ) -> list[Row]:
        """Fail."""
        raise StoreError("down")

    async def rows(self, owner_key: str, ids: Sequence[str], *, pruned: bool = True) -> list[Row]:
        """Fail."""
        raise StoreError("down")

    async def around(
        self, owner_key: str, conversation_id: str | None, row_id: str, *, before: int, after: int
    ) -> list[Row]:
        """Fail."""
        raise StoreError("down")

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Fail."""
        raise StoreError("down")

    async def erase(self, owner_key: str) -> int:
        """Fail."""
        raise StoreError("down")

    async def expire(self, before: datetime, limit: int) -> int:
        """Fail."""
        raise StoreError("down")

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Fail."""
        raise StoreError("down")

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Fail."""
        raise StoreError("down")

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Fail."""
        raise StoreError("down")

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Fail."""
        raise StoreError("down")

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Fail."""
        raise StoreError("down")

    async def stats(self, owner_key: str) -> HistoryStats:
        """Fail."""
        raise StoreError("down")


class FixedHistory(BrokenHistory):
    """A history that has the same rows for every owner, and counts no tokens."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Hold rows, which are given oldest first."""
        super().__init__()
        self._rows = [*rows]

    async def recent(self, *_args: object, **_options: object) -> HistoryPage:
        """Return all rows, newest first."""
        return HistoryPage(rows=self._rows[::-1], total=len(self._rows))

    async def search(self, *_args: object, **_options: object) -> list[Row]:
        """Find nothing: all of them have been read."""
        return []


class Written:
    """Prompts that a test has written."""

    def __init__(self, current: SystemPrompt) -> None:
        self.current = current

    async def refresh(self) -> None:
        """Do nothing."""


def quiet_logs() -> None:
    """Print no log and draw no traceback; a traceback with all its variables takes seconds."""
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Leave logging as it was, whatever is configured in the context; then print none."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    quiet_logs()


def lacking(what: str) -> NoReturn:
    """End a test that this machine lacks something for: in CI as a failure, elsewhere skipped."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


#: The modules that import packages of extras.
OF_EXTRAS = (
    "service.adapters.embedders",
    "service.adapters.mcp",
    "service.adapters.otel.exporter",
    "service.adapters.sql.postgres",
    "service.adapters.summarizers.openai",
)


def hide_package(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package of an extra look as if it were not installed, whether it is or not."""
    for name in [name for name in sys.modules if name.startswith(OF_EXTRAS)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


class Noted(Metrics):
    """Metrics that a test looks at."""

    def __init__(self) -> None:
        self.took_seconds: list[tuple[str, float]] = []
        #: The counted texts, in order.
        self.counted: list[str] = []
        self.sizes: list[Sizes] = []

    def record_duration(self, stage: Stage, seconds: float) -> None:
        """Note a time."""
        self.took_seconds.append((stage, seconds))

    def count(self, event: Event, *labels: str) -> None:
        """Note an event, which has to be known with these labels."""
        (metric,) = (each for each in METRICS if each.name == event)
        assert len(labels) == len(metric.labels), event
        assert not metric.values or labels[0] in metric.values, labels
        self.counted.append(" ".join((event, *labels)))

    def record_context(self, sizes: Sizes) -> None:
        """Note what a context came to."""
        self.sizes.append(sizes)

    def record_http_request(self, route: str, method: str, status: str, seconds: float) -> None:
        """Note a request over HTTP."""
        self.counted.append(f"{method} {route} {status}")


def compactor_of(builder: ContextBuilder) -> Compactor:
    """Return the compactor of a builder that has one."""
    compactor = find_compactor(builder.after_answer)
    assert compactor
    return compactor


async def run_recorder(recorder: Recorder, bus: BusSettings) -> None:
    """Run the loops of a recorder, as a worker does, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(repeat_with_backoff("recorder", recorder.take_new))
        tasks.create_task(every(bus.lease_seconds, "recorder.claims", recorder.claim))
        tasks.create_task(every(bus.heartbeat_seconds, "recorder.leases", recorder.renew))
