"""Erase an owner from the configured store and bus, and count what was erased."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import typer

from service.cli.output import console, table
from service.cli.start import has_persistent_store, has_shared_bus
from service.config.settings import Settings
from service.connect import open_bus, open_stores
from service.errors import ConfigError
from service.ports.bus import Forgotten

_NO_STORE: Final = (
    "the store was skipped: it is in the memory of each worker, and ends with it"
    " (store.url is memory://)"
)
_NO_BUS: Final = "the bus was skipped: none is configured (bus.url)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a store had of an owner."""

    #: Pruned ones included.
    rows: int
    #: Marks of rows that were once left out of a context.
    fallen: int
    archived: int
    summaries: int
    #: 0 or 1.
    profiles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What there was of an owner; None for a store or bus that was skipped."""

    dry_run: bool
    store: Stored | None
    bus: Forgotten | None


async def erase_owner(settings: Settings, owner_key: str, *, dry_run: bool) -> Erased:
    """Erase an owner from a persistent store and a shared bus, or count with ``dry_run``.

    Raises:
        BusError: The bus does not answer; then nothing is erased.
        ConfigError: Neither a persistent store nor a shared bus is configured.
        StoreError: The store does not answer. The bus may have been erased already.
    """
    persistent, shared = has_persistent_store(settings), has_shared_bus(settings)
    if not (persistent or shared):
        raise ConfigError(
            "neither a store nor a bus to erase from: store.url is memory://, and bus.url is not"
            " set; set CTXB_STORE__URL or CTXB_BUS__URL as the workers have them"
        )
    bus = await _erase_from_bus(settings, owner_key, dry_run=dry_run) if shared else None
    store = await _erase_from_store(settings, owner_key, dry_run=dry_run) if persistent else None
    return Erased(dry_run=dry_run, store=store, bus=bus)


async def _erase_from_bus(settings: Settings, owner_key: str, *, dry_run: bool) -> Forgotten:
    async with open_bus(settings) as connected:
        return await connected.bus.forget(owner_key, dry_run=dry_run)


async def _erase_from_store(settings: Settings, owner_key: str, *, dry_run: bool) -> Stored:
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


def print_erased(erased: Erased) -> None:
    """Print what was erased, and what was skipped or remains."""
    heading = "Found" if erased.dry_run else "Erased"
    rows = table("What", heading, numbers=[heading])
    for what, number in _counts(erased):
        rows.add_row(what, f"{number:,}")
    console().print(rows)
    for note in _notes(erased):
        typer.echo(note)


def _counts(erased: Erased) -> Iterator[tuple[str, int]]:
    if store := erased.store:
        yield "rows", store.rows
        yield "flags of rows left out", store.fallen
        yield "archived copies", store.archived
        yield "summaries", store.summaries
        yield "profile", store.profiles
    if bus := erased.bus:
        yield "stored answers", bus.results
        yield "build reports", bus.reports
        yield "dead letters", bus.dead_letters


def _notes(erased: Erased) -> Iterator[str]:
    if erased.store is None:
        yield _NO_STORE
    if erased.bus is None:
        yield _NO_BUS
        return
    if erased.bus.waiting:
        yield (
            f"{erased.bus.waiting} entries of the owner are still on the streams, and may be stored"
            " when they are processed: run this again then"
        )
    if erased.bus.unreadable:
        yield (
            f"{erased.bus.unreadable} dead letters have no readable owner, and remain: see"
            " `ctxb dead ls`"
        )
