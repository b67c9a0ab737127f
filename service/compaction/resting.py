"""Histories whose summaries fail, and are tried ever less often."""

from dataclasses import dataclass
from typing import Final

from service.remembered import Remembered
from service.summaries import Scope

#: Builds that pass between two tries at most.
MOST: Final = 63
#: Histories that are remembered.
REMEMBERED: Final = 10_000


@dataclass(slots=True)
class _Rest:
    #: Builds that are to pass before the next try, and how many of them are left.
    builds: int = 0
    left: int = 0


class Resting:
    """Lets 0, 1, 3, 7 and at last 63 builds of a history pass between tries that fail."""

    def __init__(self) -> None:
        self._rests: Remembered[Scope, _Rest] = Remembered(REMEMBERED)

    def passes(self, scope: Scope) -> bool:
        """Tell whether a build is to pass without a try; counts it then."""
        rest = self._rests.get(scope)
        if rest is None or not rest.left:
            return False
        rest.left -= 1
        return True

    def failed(self, scope: Scope) -> None:
        """Remember a try that failed."""
        rest = self._rests.get(scope)
        builds = min(2 * rest.builds + 1, MOST) if rest else 0
        self._rests[scope] = _Rest(builds, builds)

    def succeeded(self, scope: Scope) -> None:
        """Forget a history's failures."""
        self._rests.pop(scope, None)
