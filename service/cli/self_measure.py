"""Load an installation for a while, as its callers do, and tell what came of it."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from service.cli.demo.stage import worker_process
from service.cli.start import has_kept_store, has_shared_bus
from service.cli.tables import console, say, table
from service.config.settings import Settings
from service.connect import connect_client, open_bus, open_stores
from service.errors import ConfigError
from service.worker.client import ContextClient

#: Of the time, what goes to requests one after the other.
ALONE: Final = 0.25
#: Seconds of load before a figure counts, so that all is loaded and running.
WARM_UP: Final = 0.5
#: Seconds after which a request counts as not answered.
PATIENCE: Final = 30.0
#: What a row of history says, some 40 tokens of everyday words.
SAID: Final = (
    "We said that the boat leaves at nine from the old harbour, that Vera brings the sandwiches,"
    " and that somebody has to call the lighthouse before noon if the wind turns north again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to ask of an installation."""

    seconds: float
    #: Requests at the same time.
    concurrency: int
    #: Rows of history that each brings.
    history: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What came of a stretch of load."""

    #: Requests at the same time.
    concurrency: int
    #: Answers a second.
    rate: float
    #: Milliseconds from sending to the answer: of half of them, of 95 and 99 in 100.
    p50_ms: float
    p95_ms: float
    p99_ms: float
    answers: int
    #: Of those, the ones that were errors.
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of it all."""

    #: Whose workers answered.
    where: str
    cores: int
    load: Load
    #: Requests one after the other, and many at a time.
    alone: Phase
    together: Phase


async def measure(settings: Settings, load: Load) -> Measured:
    """Load the installation; raises `NoAnswerError` where nobody answers."""
    run = f"ctxb-bench-{secrets.token_hex(4)}"
    owners = [f"{run}-{number}" for number in range(load.concurrency)]
    async with AsyncExitStack() as stack:
        where, client = await stack.enter_async_context(_client(settings))
        if has_shared_bus(settings) and has_kept_store(settings):
            stack.push_async_callback(_erase, settings, owners)
        caller = _Caller(client, load.history)
        await caller.during(WARM_UP, owners)
        alone = await caller.during(load.seconds * ALONE, owners[:1])
        together = await caller.during(load.seconds * (1 - ALONE), owners)
    cores = os.cpu_count() or 1
    return Measured(where=where, cores=cores, load=load, alone=alone, together=together)


@asynccontextmanager
async def _client(settings: Settings) -> AsyncIterator[tuple[str, ContextClient]]:
    """Connect to the workers of the settings, else to one that is started for it."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        connected = await enter(open_bus(settings))
        where = "the workers of the configured bus"
        if not has_shared_bus(settings):
            if connected.url is None:
                raise ConfigError(
                    "no bus to measure over: set bus.url, or install the extra:"
                    " pip install 'context-builder[embedded]'"
                )
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ctxb-bench-")))
            store = f"sqlite:///{folder / 'bench.db'}"
            variables = {
                "CTXB_BUS__URL": connected.url,
                "CTXB_HEALTH__PORT": "null",
                "CTXB_STORE__URL": store,
            }
            await enter(worker_process(variables, folder))
            where = f"a worker started for this, over {connected.origin}"
        yield where, await enter(connect_client(settings, connected.bus))


async def _erase(settings: Settings, owners: Sequence[str]) -> None:
    """Take the inputs, which workers record, out of the store again."""
    async with open_stores(settings) as stores:
        for owner in owners:
            await stores.history.erase(owner)


class _Caller:
    """Sends requests, each when the one before it is answered."""

    def __init__(self, client: ContextClient, history: int) -> None:
        self._client = client
        self._past = [_row(number) for number in range(history)]
        self._numbers = count()

    async def during(self, seconds: float, owners: Sequence[str]) -> Phase:
        """Keep a request of each owner on its way for so many seconds."""
        latencies: list[float] = []
        errors = 0
        began = time.perf_counter()
        until = began + seconds

        async def call(owner: str) -> None:
            nonlocal errors
            # at least one, however slow it is
            while not latencies or time.perf_counter() < until:
                before = time.perf_counter()
                response = await self._client.send(self._request(owner), timeout_seconds=PATIENCE)
                latencies.append(time.perf_counter() - before)
                errors += response.content.status == "error"

        # no task group: it would wrap the error that nobody answers
        await asyncio.gather(*map(call, owners))
        return _phase(latencies, time.perf_counter() - began, len(owners), errors)

    def _request(self, owner: str) -> dict[str, Any]:
        # the same input of the same run each time, so that it is recorded once
        said = {"id": f"{owner}-input", "role": "HUMAN", "content": "When does the boat leave?"}
        return {
            "id": f"{owner}-{next(self._numbers)}",
            "run_id": f"{owner}-run",
            "owner_key": owner,
            "content": {
                "history": [said],
                "metadata": {"context": {"past": self._past, "memory_limit": None}},
            },
        }


def _row(number: int) -> dict[str, Any]:
    role = "AI" if number % 2 else "HUMAN"
    minute = f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"
    return {"id": f"row-{number}", "role": role, "content": SAID, "timestamp": minute}


def _phase(latencies: Sequence[float], seconds: float, concurrency: int, errors: int) -> Phase:
    ordered = sorted(latencies)

    def reached(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)

    return Phase(
        concurrency=concurrency,
        rate=round(len(ordered) / seconds, 1),
        p50_ms=reached(0.5),
        p95_ms=reached(0.95),
        p99_ms=reached(0.99),
        answers=len(ordered),
        errors=errors,
    )


def print_measured(found: Measured) -> None:
    """Print a table, and what it means."""
    numbers = ["Answers", "A second", "p50 ms", "p95 ms", "p99 ms", "Errors"]
    rows = table("In flight", *numbers, numbers=["In flight", *numbers])
    for phase in (found.alone, found.together):
        times = (f"{each:,.1f}" for each in (phase.p50_ms, phase.p95_ms, phase.p99_ms))
        counts = (f"{phase.answers:,}", f"{phase.rate:,.0f}")
        rows.add_row(f"{phase.concurrency}", *counts, *times, f"{phase.errors:,}")
    console().print(rows)
    say(f"Asked: {found.where}; {found.load.history} rows of history in each request.")
    say(
        f"A caller that is alone waits {found.alone.p50_ms:,.1f} ms for half of its contexts;"
        f" {found.together.concurrency} callers together get {found.together.rate:,.0f} a second."
        f" This program takes its share of this machine's {found.cores} cores as well: callers"
        " elsewhere get more. More workers bring more, up to one a core."
    )


def as_document(found: Measured) -> dict[str, object]:
    """Return the figures as JSON holds them."""
    return asdict(found)
