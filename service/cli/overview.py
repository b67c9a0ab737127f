"""The bus and the store of the settings at a glance, once or again and again."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from service.cli.start import has_kept_store, has_shared_bus
from service.cli.tables import console, printable, table
from service.config.settings import Settings
from service.connect import open_survey, store_state
from service.errors import BusError, StoreError
from service.ports.status import BusState, ServerState, StoreState, StreamState


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there is to see at one moment."""

    at: datetime
    #: None where the settings name no bus that can be looked at, or it is away.
    bus: BusState | None
    servers: Sequence[ServerState]
    #: None where the store keeps nothing, is not there yet, or is away.
    store: StoreState | None
    #: Requests a second since the look before; None at the first.
    rate: float | None = None
    #: Why ``bus`` or ``store`` could not be looked at, while all is watched on.
    away: Mapping[str, str] = field(default_factory=dict)


async def look(settings: Settings) -> Overview:
    """Look once; raises `BusError` or `StoreError`."""
    bus, servers = await _bus(settings)
    store = await _store(settings)
    return Overview(at=datetime.now(UTC), bus=bus, servers=servers, store=store)


async def watching(settings: Settings, seconds: float, *, as_json: bool) -> None:
    """Look every so often and show it, in place where stdout is a terminal.

    What is away for a while is told of, and looked for again. Raises `BusError` or `StoreError`
    where trying again won't help.
    """
    before: tuple[float, int | None] | None = None
    in_place = console().is_terminal and not as_json
    with Live(console=console(), auto_refresh=False) if in_place else nullcontext() as live:
        while True:
            seen, now = await _look_on(settings), time.monotonic()
            added = _added(seen.bus)
            seen = replace(seen, rate=_rate(before, (now, added)))
            if live is None:
                show(seen, as_json=as_json, line=True)
            else:
                live.update(Group(*_parts(seen)), refresh=True)
            before = now, added
            await asyncio.sleep(seconds)


def show(found: Overview, *, as_json: bool, line: bool = False) -> None:
    """Print what was seen: as JSON, on one ``line`` or several, or as tables."""
    if as_json:
        document = {**asdict(found), "at": found.at.isoformat()}
        typer.echo(json.dumps(document, indent=None if line else 2))
        return
    for part in _parts(found):
        console().print(part)


async def _look_on(settings: Settings) -> Overview:
    """Look once; what is away is told of instead of raised."""
    bus, servers, store, away = None, list[ServerState](), None, dict[str, str]()
    with _noting(away, "bus"):
        bus, servers = await _bus(settings)
    with _noting(away, "store"):
        store = await _store(settings)
    return Overview(at=datetime.now(UTC), bus=bus, servers=servers, store=store, away=away)


@contextmanager
def _noting(away: dict[str, str], place: str) -> Iterator[None]:
    try:
        yield
    except (BusError, StoreError) as error:
        if not error.retryable:
            raise
        away[place] = error.detail


async def _bus(settings: Settings) -> tuple[BusState | None, list[ServerState]]:
    if not has_shared_bus(settings):
        return None, []
    async with open_survey(settings) as survey:
        return await survey.state(), await survey.servers()


async def _store(settings: Settings) -> StoreState | None:
    return await store_state(settings) if has_kept_store(settings) else None


def _parts(found: Overview) -> Iterator[RenderableType]:
    if found.bus:
        yield _streams([*found.bus.requests, *found.bus.results])
        if found.bus.workers:
            yield _workers(found.bus)
        yield from map(Text, _bus_lines(found.bus, found.rate))
    yield from map(Text, map(_server_line, found.servers))
    if found.store:
        yield Text(_store_line(found.store))
    for place, cause in found.away.items():
        yield Text(printable(f"{place} away: {cause}"))


def _streams(streams: Sequence[StreamState]) -> RenderableType:
    numbers = ["Waiting", "In work", "Oldest", "Ever"]
    rows = table("Stream", *numbers, numbers=numbers)
    for each in streams:
        oldest = f"{each.oldest_pending_seconds:.1f} s" if each.pending else "-"
        ever = "?" if each.added is None else f"{each.added:,}"
        waiting = "?" if each.lag is None else f"{each.lag:,}"
        rows.add_row(printable(each.name), waiting, f"{each.pending:,}", oldest, ever)
    return rows


def _workers(bus: BusState) -> RenderableType:
    numbers = ["In work", "Last read"]
    rows = table("Worker", *numbers, numbers=numbers)
    for each in bus.workers:
        rows.add_row(printable(each.name), f"{each.pending:,}", f"{each.silent_seconds:.1f} s ago")
    return rows


def _bus_lines(bus: BusState, rate: float | None) -> Iterator[str]:
    if rate is not None:
        yield f"requests: {rate:,.1f} a second"
    yield (
        f"workers: {bus.listening} listening; shards: {bus.shards};"
        f" dead letters: {bus.dead_letters:,}"
    )


def _server_line(server: ServerState) -> str:
    most = f" of {_megabytes(server.most_bytes)}" if server.most_bytes else ""
    kept = "AOF" if server.durable else "no AOF"
    used = _megabytes(server.used_bytes)
    return printable(f"server: {server.product} {server.version}, {used}{most}, {kept}")


def _store_line(store: StoreState) -> str:
    about = "" if store.exact else "about "
    used = "" if store.connected is None else f", {store.connected} connections"
    return (
        f"store: {about}{store.rows:,} rows of {store.owners:,} owners,"
        f" {store.summaries:,} summaries, {_megabytes(store.bytes)}{used}"
    )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"


def _added(bus: BusState | None) -> int | None:
    """Return how many requests there ever were; None where a server doesn't count them."""
    counts = [each.added for each in bus.requests] if bus else [None]
    return None if None in counts else sum(count or 0 for count in counts)


def _rate(before: tuple[float, int | None] | None, now: tuple[float, int | None]) -> float | None:
    if before is None or before[1] is None or now[1] is None:
        return None
    # a stream that was flushed counts from the beginning
    return max(0, now[1] - before[1]) / (now[0] - before[0])
