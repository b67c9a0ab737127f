"""The rate at which a worker builds, and its limits for lanes with too many requests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

#: Seconds, and builds, after which a pace is known.
SECONDS: Final = 1.0
BUILDS: Final = 32
#: By how much a pace may still rise.
MARGIN: Final = 2
#: Most requests that are refused between two builds, as refusing takes CPU too.
REFUSALS: Final = 4
#: Limit of the lanes, and seconds without requests after which a lane's pace is forgotten.
LANES: Final = 256
FORGET: Final = 5.0


@dataclass(slots=True)
class _Pace:
    since: float
    builds: int = 0
    #: Builds per second: the highest so far, since outages end.
    best: float = 0.0
    #: Requests that were refused since the last build.
    refused: int = 0


class Paces:
    """Decides which requests are refused early, as their lane has more than can be built in time.

    The oldest are refused, and no more than necessary: nothing is refused that could be built
    before its deadline at `MARGIN` times the best pace.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paces: TTLCache[str, _Pace] = TTLCache(LANES, FORGET, timer=clock)

    def refuses(self, lane: str, *, behind: int, seconds: float) -> bool:
        """Return whether to refuse a request, and not to build it.

        ``behind`` is how many more of its lane this worker has to expect, and ``seconds`` the time
        that each has from its arrival.
        """
        now = self._clock()
        pace = self._paces.get(lane) or _Pace(now)
        self._paces[lane] = pace  # forgotten later
        too_many = pace.best and behind > MARGIN * pace.best * seconds
        if too_many and pace.refused < REFUSALS:
            pace.refused += 1
            return True
        pace.refused = 0
        pace.builds += 1
        if pace.builds >= BUILDS and now - pace.since >= SECONDS:
            pace.best = max(pace.best, pace.builds / (now - pace.since))
            pace.since, pace.builds = now, 0
        return False
