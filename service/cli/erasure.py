"""Erase an owner from the configured store and bus, and tell what there was."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import typer

from service.cli.start import has_kept_store, has_shared_bus
from service.cli.tables import console, table
from service.config.settings import Settings
from service.connect import open_bus, open_stores
from service.errors import ConfigError
from service.ports.bus import Forgotten

_NO_STORE: Final = (
    "the store was not looked at: it is in the memory of each worker, and ends with it"
    " (store.url is memory://)"
)
_NO_BUS: Final = "the bus was not looked at: none is named (bus.url)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a store held of an owner."""

    #: Pruned ones too.
    rows: int
    #: Notes that a row once fell out of a context.
    fallen: int
    archived: int
    summaries: int
    #: 1, or 0 where there was none.
    profiles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What there was of an owner; None for what was not looked at."""

    dry_run: bool
    store: Stored | None
    bus: Forgotten | None


async def erase_owner(settings: Settings, owner_key: str, *, dry_run: bool) -> Erased:
    """Erase an owner wherever others would find something, or count what there is.

    Raises:
        BusError: The bus does not answer; then nothing is erased.
        ConfigError: The settings name neither a store nor a bus that outlives this process.
        StoreError: The store does not answer. The bus may be erased already.
    """
    stored, shared = has_kept_store(settings), has_shared_bus(settings)
    if not (stored or shared):
        raise ConfigError(
            "neither a store nor a bus to erase from: store.url is memory://, and bus.url names"
            " none; set CTXB_STORE__URL or CTXB_BUS__URL as the workers have them"
        )
    bus = await _forget(settings, owner_key, dry_run=dry_run) if shared else None
    store = await _erase(settings, owner_key, dry_run=dry_run) if stored else None
    return Erased(dry_run=dry_run, store=store, bus=bus)


async def _forget(settings: Settings, owner_key: str, *, dry_run: bool) -> Forgotten:
    async with open_bus(settings) as connected:
        return await connected.bus.forget(owner_key, dry_run=dry_run)


async def _erase(settings: Settings, owner_key: str, *, dry_run: bool) -> Stored:
    async with open_stores(settings) as stores:
        held = await stores.history.stats(owner_key)
        rows, profiles = held.rows + held.pruned, int(bool(await stores.profiles.get(owner_key)))
        if not dry_run:
            rows = await stores.history.erase(owner_key)
            profiles = int(await stores.profiles.erase(owner_key))
    return Stored(
        rows=rows,
        fallen=held.fallen,
        archived=held.archived,
        summaries=held.summaries,
        profiles=profiles,
    )


def erased_dict(erased: Erased) -> dict[str, Any]:
    """Return it as JSON holds it."""
    return asdict(erased)


def print_erased(erased: Erased) -> None:
    """Print what was erased, and say what was not looked at or stays."""
    counted = "There is" if erased.dry_run else "Erased"
    shown = table("What", counted, numbers=[counted])
    for what, number in _lines(erased):
        shown.add_row(what, f"{number:,}")
    console().print(shown)
    for sentence in _remarks(erased):
        typer.echo(sentence)


def _lines(erased: Erased) -> Iterator[tuple[str, int]]:
    if store := erased.store:
        yield "rows", store.rows
        yield "marks of rows that fell out", store.fallen
        yield "archived copies", store.archived
        yield "summaries", store.summaries
        yield "profile", store.profiles
    if bus := erased.bus:
        yield "stored answers", bus.results
        yield "build reports", bus.reports
        yield "dead letters", bus.dead_letters


def _remarks(erased: Erased) -> Iterator[str]:
    if erased.store is None:
        yield _NO_STORE
    if erased.bus is None:
        yield _NO_BUS
        return
    if erased.bus.waiting:
        yield (
            f"{erased.bus.waiting} entries of the owner are on the streams still, and may be stored"
            " when they are worked off: run this again then"
        )
    if erased.bus.unreadable:
        yield (
            f"{erased.bus.unreadable} dead letters don't say whose they are, and stay: look at them"
            " with `ctxb dead ls`"
        )
