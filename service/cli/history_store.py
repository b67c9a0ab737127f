"""History on its way between files and the configured store."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import Progress

from formatters.model import Row
from service.config.settings import Settings
from service.connect import open_stores
from service.ports.stores import HistoryStore

T = TypeVar("T")

#: Rows that are stored in one transaction.
BATCH: Final = 200


async def store_rows(settings: Settings, owner_key: str, rows: Sequence[Row]) -> int:
    """Store rows, with a progress bar where stderr is a terminal; returns how many were new."""
    new = 0
    async with open_stores(settings) as stores:
        with _progress() as progress:
            bar = progress.add_task("storing", total=len(rows))
            for start in range(0, len(rows), BATCH):
                batch = rows[start : start + BATCH]
                new += await stores.history.append(owner_key, batch)
                progress.advance(bar, len(batch))
    return new


async def read_stored_rows(
    settings: Settings, owner_key: str, conversation_id: str | None, limit: int | None = None
) -> list[Row]:
    """Return the newest rows, or all, oldest first."""
    async with open_stores(settings) as stores:
        page = await stores.history.recent(owner_key, conversation_id, max_rows=limit)
    return list(page.rows[::-1])


async def ask_history(settings: Settings, ask: Callable[[HistoryStore], Awaitable[T]]) -> T:
    """Return what the configured history says."""
    async with open_stores(settings) as stores:
        return await ask(stores.history)


def _progress() -> Progress:
    errors = Console(stderr=True)
    return Progress(console=errors, disable=not errors.is_terminal, transient=True)
