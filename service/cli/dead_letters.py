"""Find and settle dead letters on the configured bus."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from service.aio import batches
from service.cli.dead_text import Listed, Settled, listed
from service.config.settings import Settings
from service.connect import open_bus
from service.ports.bus import DeadLetter, DeadLetters

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


async def retry_letters(settings: Settings, chosen: Chosen) -> Settled:
    """Put entries back on their streams; one that can't be keeps no other from it."""
    return await _settle(settings, chosen, lambda letters, ids: letters.retry(ids))


async def drop_letters(settings: Settings, chosen: Chosen) -> Settled:
    """Delete entries; one that is gone keeps no other from it."""
    return await _settle(settings, chosen, lambda letters, ids: letters.drop(ids))


async def _settle(settings: Settings, chosen: Chosen, settle: Settle) -> Settled:
    async with open_bus(settings) as connected:
        letters = connected.bus.dead_letters
        if chosen.ids:
            # alone, so that each that could not be settled can be named
            missed = tuple([each for each in chosen.ids if not await settle(letters, [each])])
            done = len(chosen.ids) - len(missed)
            return Settled(done=done, others=len(missed), missed=missed)
        asked = done = 0
        async with (
            aclosing(_ids(letters, chosen.reason)) as ids,
            aclosing(batches(ids, BATCH)) as each,
        ):
            async for batch in each:
                asked += len(batch)
                done += await settle(letters, batch)
    return Settled(done=done, others=asked - done)


async def _ids(letters: DeadLetters, reason: str | None) -> AsyncGenerator[str, None]:
    async with aclosing(letters.each()) as each, aclosing(_matching(each, reason)) as those:
        async for letter in those:
            yield letter.id


async def _matching(
    letters: AsyncGenerator[DeadLetter, None], reason: str | None
) -> AsyncGenerator[DeadLetter, None]:
    async for letter in letters:
        if reason is None or reason.casefold() in letter.reason.casefold():
            yield letter
