"""A history as it was."""

import pytest

from service.audit.replay import Snapshot
from service.errors import StoreError
from service.ports.stores import HistoryStats
from tests.support import row

ROWS = [row(1, "human", "one"), row(2, "ai", "two")]


async def test_every_reader_gets_all_rows() -> None:
    """Bounds don't count: the rows are what was read within them."""
    snapshot = Snapshot(ROWS, 3)
    page = await snapshot.recent("o", "c", max_rows=1, max_tokens=0)
    assert (list(page.rows), page.total) == (ROWS[::-1], 5)
    assert await snapshot.get_history("o", 1) == [ROWS[1]]
    assert await snapshot.rows("o", ["m2", "m3"]) == [ROWS[1]]


async def test_what_is_past_stays_as_it_was() -> None:
    """It is neither written nor erased nor marked."""
    snapshot = Snapshot(ROWS, 0)
    for change in (
        snapshot.append("o", ROWS),
        snapshot.erase("o"),
        snapshot.flag_fallen("o", ["m1"]),
        snapshot.prune("o", ["m1"]),
        snapshot.restore("o", ["m1"]),
    ):
        with pytest.raises(StoreError):
            await change
    assert await snapshot.archived("o", 1) == []
    assert await snapshot.stats("o") == HistoryStats(rows=2)
