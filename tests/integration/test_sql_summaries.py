"""What the SQL store remembers of the summaries that it has read."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from formatters.model import Summary
from service.adapters.sql import summary_store
from service.adapters.sql.store import open_sql_store
from service.adapters.sql.summary_store import SqlSummaries
from service.ports.stores import Expected, rows_fingerprint
from tests.stores import RECEIPT, Words
from tests.support import row


async def test_summaries_are_remembered_up_to_a_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of long histories push others out, and all are read again as they were."""
    monkeypatch.setattr(summary_store, "CACHE_SIZE", 210)  # two summaries of three rows
    url = f"sqlite:///{tmp_path / 'history.db'}"
    made: dict[str, Summary] = {}
    async with open_sql_store(url, Words, lambda: datetime.now(UTC)) as stores:
        for owner in ("o", "p", "q"):
            await stores.history.append(owner, [row(n, "HUMAN", f"words {n}") for n in range(3)])
            ids = ("m0", "m1", "m2")
            made[owner] = Summary(
                id="s",
                owner_key=owner,
                text="They said words.",
                message_ids=ids,
                first_timestamp=RECEIPT,
                tokens=3,
                created=RECEIPT,
                summarizer="test",
                fingerprint=rows_fingerprint(await stores.history.rows(owner, ids)),
            )
            state = Expected(summaries=frozenset(), last_id="m2", rows=3)
            assert await stores.summaries.put(made[owner], state)
        kept = stores.summaries
        assert isinstance(kept, SqlSummaries)
        for owner in ("o", "o", "p", "q", "o", "q"):
            assert await kept.read(owner) == [made[owner]]
            assert len(kept._cache) <= 2
        assert {owner for owner, _ in kept._cache} == {"q", "o"}
