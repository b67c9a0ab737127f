"""What every store adapter opens: a history, and profiles and summaries beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from service.ports import HistoryStore, ProfileStore
from service.summaries import SummaryStore

#: Tell the time, aware.
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """A history, the profiles and the summaries, opened together."""

    history: HistoryStore
    profiles: ProfileStore
    summaries: SummaryStore
