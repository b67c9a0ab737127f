"""Find and settle dead letters on the configured bus."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from service.app import open_bus
from service.bus import DeadLetter, DeadLetters
from service.cli.dead_text import Listed, listed
from service.config.settings import Settings

#: Entries that are settled in one round trip.
BATCH: Final = 100

Settle = Callable[[DeadLetters, Sequence[str]], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which entries to settle."""

    #: Empty for all that there are now.
    ids: tuple[str, ...] = ()
    #: Of all, those whose reason has this in it, in whatever case.
    reason: str | None = None


async def newest(settings: Settings, limit: int, reason: str | None) -> list[Listed]:
    """Return the newest entries, the newest last; no more than a few payloads are held at once."""
    found: list[Listed] = []
    async with (
        open_bus(settings) as connected,
        aclosing(connected.bus.dead_letters.each(newest_first=True)) as letters,
        aclosing(_matching(letters, reason)) as matching,
    ):
        async for letter in matching:
            found.append(listed(letter))
            if len(found) == limit:
                break
    return found[::-1]


async def find(settings: Settings, letter_id: str) -> DeadLetter | None:
    """Return an entry, or None where it isn't there."""
    async with open_bus(settings) as connected:
        return await connected.bus.dead_letters.find(letter_id)


async def retry_letters(settings: Settings, chosen: Chosen) -> tuple[int, int]:
    """Put entries back on their streams; returns how many, and how many not."""
    return await _settle(settings, chosen, lambda letters, ids: letters.retry(ids))


async def drop_letters(settings: Settings, chosen: Chosen) -> tuple[int, int]:
    """Delete entries; returns how many, and how many were gone."""
    return await _settle(settings, chosen, lambda letters, ids: letters.drop(ids))


async def _settle(settings: Settings, chosen: Chosen, settle: Settle) -> tuple[int, int]:
    asked = done = 0
    async with (
        open_bus(settings) as connected,
        aclosing(_ids(connected.bus.dead_letters, chosen)) as ids,
        aclosing(_batches(ids)) as batches,
    ):
        async for batch in batches:
            asked += len(batch)
            done += await settle(connected.bus.dead_letters, batch)
    return done, asked - done


async def _ids(letters: DeadLetters, chosen: Chosen) -> AsyncGenerator[str, None]:
    for letter_id in chosen.ids:
        yield letter_id
    if chosen.ids:
        return
    async with aclosing(letters.each()) as each, aclosing(_matching(each, chosen.reason)) as those:
        async for letter in those:
            yield letter.id


async def _matching(
    letters: AsyncGenerator[DeadLetter, None], reason: str | None
) -> AsyncGenerator[DeadLetter, None]:
    async for letter in letters:
        if reason is None or reason.casefold() in letter.reason.casefold():
            yield letter


async def _batches(ids: AsyncGenerator[str, None]) -> AsyncGenerator[list[str], None]:
    batch: list[str] = []
    async for letter_id in ids:
        batch.append(letter_id)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
