"""What every store adapter opens: a history and the profiles beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from service.ports import HistoryStore, ProfileStore

#: Tell the time, aware.
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """A history and the profiles, opened together."""

    history: HistoryStore
    profiles: ProfileStore
