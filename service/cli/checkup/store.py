"""The store: whether it can be used, is up to date, and has room for all workers."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from service.cli.checkup.finding import Finding, fail, ok, warn
from service.cli.start import has_kept_store, has_shared_bus
from service.config.settings import Settings
from service.connect import check_store, open_survey, store_file, store_state
from service.errors import BusError, SchemaError
from service.ports.status import StoreState

#: Seconds by which the database's clock may differ.
CLOCK_SECONDS: Final = 1.0
#: Bytes that a disk should have left, and those below which it is full.
SPARSE: Final = 1_000_000_000
FULL: Final = 50_000_000


async def store(settings: Settings) -> AsyncIterator[Finding]:
    """Look at the store of `store.url`."""
    if not has_kept_store(settings):
        advice = "set store.url: history ends with the process, and no two workers share one"
        yield warn("store", "in memory", advice)
        return
    file = store_file(settings)
    if file is not None and not file.exists():
        yield ok("store", f"{file} is not there yet; the first worker makes it")
        yield disk("disk of the store", file.absolute().parent)
        return
    try:
        yield ok("store", f"reached, its schema is at revision {await check_store(settings)}")
    except SchemaError as error:
        yield fail("store", error.detail, "do so as docs/postgres.md, Upgrading, has it")
        return
    if file is not None:
        yield disk("disk of the store", file.absolute().parent)
    if (state := await store_state(settings)) is not None:
        for finding in _server(state, settings, await _workers(settings)):
            yield finding


def _server(state: StoreState, settings: Settings, workers: int) -> Iterator[Finding]:
    if state.connections is not None:
        pool = settings.store.pool_size
        found = (
            f"{pool} for each of {workers} workers, {state.connections} offered to all,"
            f" {state.connected} in use"
        )
        if pool * workers > state.connections:
            advice = "lower store.pool_size, or raise max_connections: docs/postgres.md, Settings"
            yield fail("store connections", found, advice)
        else:
            yield ok("store connections", found)
    if state.ahead_seconds is not None and abs(state.ahead_seconds) > CLOCK_SECONDS:
        found = f"differs by {abs(state.ahead_seconds):.1f} s"
        yield warn("store clock", found, "set both clocks by NTP: retention goes by the workers'")


async def _workers(settings: Settings) -> int:
    """Return how many workers share the store, at least the one that is to run here."""
    if not has_shared_bus(settings):
        return 1
    try:
        async with open_survey(settings) as survey:
            return max(1, (await survey.state()).listening)
    except BusError:  # which is told of the bus
        return 1


def disk(what: str, folder: Path) -> Finding:
    """Return how much a disk has left."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return fail(what, f"{folder}: {error.strerror}", "make the folder, or name another one")
    found = f"{free / 1e9:,.1f} GB left"
    if free < FULL:
        return fail(what, found, f"make room on the disk of {folder}")
    return ok(what, found) if free >= SPARSE else warn(what, found, f"make room beside {folder}")
