"""``ctxb stats``: what waits on the bus, the workers, and the sizes of bus and store."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live

from service.cli.exits import run_until_stopped
from service.cli.options import Json
from service.cli.output import console, counted, print_json, printable, table
from service.cli.start import has_persistent_store, start
from service.config.settings import Settings
from service.connect import find_bus, has_shared_bus, open_survey, require_shared_bus, store_state
from service.errors import BusError, StoreError
from service.ports.status import BusState, ServerState, StoreState

Watch = Annotated[
    float | None,
    typer.Option(min=0.2, metavar="SECONDS", help="Repeat at this interval, until Ctrl-C."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of bus and store at one moment."""

    at: datetime
    #: None if no shared bus is configured, or it is away.
    bus: BusState | None
    servers: Sequence[ServerState]
    #: None if no persistent store is configured, or it doesn't exist yet, or is away.
    store: StoreState | None
    #: Requests per second since the previous overview; None for the first one.
    rate: float | None = None
    #: Why ``bus`` or ``store`` could not be read, while watching.
    away: Mapping[str, str] = field(default_factory=dict)


def stats(ctx: typer.Context, watch: Watch = None, as_json: Json = False) -> None:
    """Count waiting and running requests, workers and dead letters; show the store's size.

    ctxb stats
    ctxb stats --watch 2
    ctxb stats --watch 10 --json >> stats.jsonl

    A request is waiting until a worker builds it, and in work until it is
    answered. --watch adds the rate of requests, prints each JSON document on
    one line, and continues while bus or store can't be reached. On Postgres,
    numbers of rows are estimates.
    """
    settings = find_bus(start(ctx.obj))
    if not has_persistent_store(settings):
        require_shared_bus(settings)
    if watch is None:
        print_overview(run_until_stopped(read_overview(settings)), as_json=as_json)
    else:
        run_until_stopped(watch_overview(settings, watch, as_json=as_json), endless=True)


async def read_overview(settings: Settings, *, watching: bool = False) -> Overview:
    """Read the state of bus and store once.

    Raises `BusError` or `StoreError`; while ``watching`` only if trying again can't help.
    """
    bus, servers, store, away = None, list[ServerState](), None, dict[str, str]()

    @contextmanager
    def collect_error(name: str) -> Iterator[None]:
        try:
            yield
        except (BusError, StoreError) as error:
            if not (watching and error.retryable):
                raise
            away[name] = error.detail

    if has_shared_bus(settings):
        with collect_error("bus"):
            async with open_survey(settings) as survey:
                bus, servers = await survey.state(), await survey.servers()
    if has_persistent_store(settings):
        with collect_error("store"):
            store = await store_state(settings)
    return Overview(at=datetime.now(UTC), bus=bus, servers=servers, store=store, away=away)


async def watch_overview(settings: Settings, seconds: float, *, as_json: bool) -> None:
    """Print the state of bus and store at an interval, in place if stdout is a terminal.

    A bus or store that is away is reported, and tried again. Raises `BusError` or `StoreError` if
    trying again can't help.
    """
    before: tuple[float, int] | None = None
    in_place = console().is_terminal and not as_json
    with Live(console=console(), auto_refresh=False) if in_place else nullcontext() as live:
        while True:
            overview = await read_overview(settings, watching=True)
            current = _requests_added(overview.bus)
            overview = replace(overview, rate=_rate(before, current))
            if live is None:
                print_overview(overview, as_json=as_json, line=True)
            else:
                live.update(Group(*_parts(overview)), refresh=True)
            before = current
            await asyncio.sleep(seconds)


def _requests_added(bus: BusState | None) -> tuple[float, int] | None:
    """Return the time, and the number of requests ever added; None if a server doesn't count."""
    counts = [stream.added for stream in bus.requests] if bus else [None]
    return None if None in counts else (time.monotonic(), sum(count or 0 for count in counts))


def _rate(before: tuple[float, int] | None, now: tuple[float, int] | None) -> float | None:
    if before is None or now is None:
        return None
    # negative after a flush, which sets the counter to 0
    return max(0, now[1] - before[1]) / (now[0] - before[0])


def print_overview(overview: Overview, *, as_json: bool, line: bool = False) -> None:
    """Print an overview as tables or as JSON, on one ``line`` or indented."""
    if as_json:
        print_json(overview, indent=None if line else 2)
        return
    for part in _parts(overview):
        console().print(part)


def _parts(overview: Overview) -> Iterator[RenderableType]:
    if overview.bus:
        yield from _bus_parts(overview.bus, overview.rate)
    for server in overview.servers:
        limit = f" of {_megabytes(server.most_bytes)}" if server.most_bytes else ""
        used, persistence = _megabytes(server.used_bytes), "AOF" if server.durable else "no AOF"
        yield printable(f"server: {server.product} {server.version}, {used}{limit}, {persistence}")
    if store := overview.store:
        about = "" if store.exact else "about "
        connections = (
            "" if store.connected is None else f", {counted(store.connected, 'connection')}"
        )
        yield (
            f"store: {about}{counted(store.rows, 'row')} of {counted(store.owners, 'owner')},"
            f" {counted(store.summaries, 'summary')}, {_megabytes(store.bytes)}{connections}"
        )
    for name, cause in overview.away.items():
        yield printable(f"{name} away: {cause}")


def _bus_parts(bus: BusState, rate: float | None) -> Iterator[RenderableType]:
    numbers = ["Waiting", "In work", "Oldest", "Ever added"]
    rows = (
        (
            stream.name,
            "?" if stream.lag is None else stream.lag,
            stream.pending,
            f"{stream.oldest_pending_seconds:.1f} s" if stream.pending else "-",
            "?" if stream.added is None else stream.added,
        )
        for stream in (*bus.requests, bus.recalls, *bus.results)
    )
    yield table("Stream", *numbers, rows=rows, numbers=numbers)
    if bus.workers:
        numbers = ["In work", "Last read"]
        workers = (
            (worker.name, worker.pending, f"{worker.silent_seconds:.1f} s ago")
            for worker in bus.workers
        )
        yield table("Worker", *numbers, rows=workers, numbers=numbers)
    if rate is not None:
        yield f"requests: {rate:,.1f} per second"
    yield (
        f"workers: {bus.listening} listening; shards: {bus.shards};"
        f" dead letters: {bus.dead_letters:,}"
    )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"
