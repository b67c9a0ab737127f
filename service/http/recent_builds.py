"""The newest builds of a worker, in its memory, for those who look at them."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from service.build.after_answer import build_bytes
from service.build.report import Built

#: Bytes that the builds may hold together; the newest one is kept in any case.
MOST_BYTES: Final = 32 * 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A build that is kept."""

    #: Counts up with every build of this process.
    number: int
    at: datetime
    built: Built
    #: When it is given up, by a clock that never goes back.
    until: float
    weight: int

    @property
    def owner_key(self) -> str:
        """Return whose it is."""
        return self.built.request.owner_key


class RecentBuilds:
    """Keeps builds for so many seconds; others push out the oldest.

    It is given builds whose manifests the bus has, and shows none that is older than its manifest:
    what has expired or was erased there must not be shown here.
    """

    def __init__(
        self,
        *,
        size: int,
        seconds: float,
        now: Callable[[], datetime],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._size = size
        self._seconds = seconds
        self._now = now
        self._clock = clock
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._bytes = 0
        self._last = 0
        self._bell = asyncio.Event()
        self.closed = False
        #: Tells the numbers of this process from those of another.
        self.era: Final = secrets.token_hex(4)

    @property
    def last(self) -> int:
        """Return the number of the newest build there was; 0 before the first."""
        return self._last

    def add(self, built: Built) -> None:
        """Keep a build; takes some microseconds."""
        self.drop(built.content.build_id)
        self._last += 1
        held = Held(
            number=self._last,
            at=self._now(),
            built=built,
            until=self._clock() + self._seconds,
            weight=build_bytes(built),
        )
        self._held[built.content.build_id] = held
        self._bytes += held.weight
        self.tidy()
        self._ring()

    def find(self, build_id: str) -> Held | None:
        """Return a build, or None where it isn't kept any more."""
        self.tidy()
        return self._held.get(build_id)

    def drop(self, build_id: str) -> None:
        """Give up a build, if it is kept."""
        if held := self._held.pop(build_id, None):
            self._bytes -= held.weight

    def of(self, owner_key: str, *, before: int | None = None) -> Iterator[Held]:
        """Yield the builds of an owner, the newest first, those of smaller numbers only."""
        self.tidy()
        for held in [*reversed(self._held.values())]:
            if held.owner_key == owner_key and (before is None or held.number < before):
                yield held

    def since(self, number: int, owner_key: str) -> list[Held]:
        """Return the builds of an owner that came after a number, oldest first."""
        self.tidy()
        return [
            held
            for held in self._held.values()
            if held.number > number and held.owner_key == owner_key
        ]

    def has_all_since(self, number: int) -> bool:
        """Tell whether every build that came after a number is still kept."""
        self.tidy()
        oldest = next(iter(self._held.values()), None)
        return number >= self._last or (oldest is not None and oldest.number <= number + 1)

    def tidy(self) -> None:
        """Give up what is too old, or too much."""
        now = self._clock()
        while self._held:
            build_id, oldest = next(iter(self._held.items()))
            crowded = len(self._held) > self._size or self._bytes > MOST_BYTES
            if oldest.until > now and not (crowded and len(self._held) > 1):
                return
            self.drop(build_id)

    async def wait(self, seconds: float) -> None:
        """Wait for the next build, or for the end, but no longer than so many seconds."""
        if self.closed:
            return
        bell = self._bell
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Let go of everything, and of all who wait."""
        self.closed = True
        self._held.clear()
        self._bytes = 0
        self._ring()

    def _ring(self) -> None:
        self._bell.set()
        self._bell = asyncio.Event()
