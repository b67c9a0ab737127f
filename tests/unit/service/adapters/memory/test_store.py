"""The memory store against a plain list, whatever the order in which rows arrive."""

import asyncio
import threading
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from formatters.model import Row
from service.adapters.memory.store import open_memory_store
from service.adapters.store_records import LARGE_BATCH
from tests.stores import RECEIPT, Words

times = st.none() | st.integers(0, 5).map(lambda minute: f"2025-01-01T10:{minute:02}:00Z")
rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 12).map(str),
        "role": st.sampled_from(["HUMAN", "AI", "TOOL"]),
        "content": st.integers(0, 3).map(lambda words: "w " * words),
        "timestamp": times,
        "conversation_id": st.sampled_from([None, "x", "y"]),
    }
)
names = st.lists(st.integers(0, 12).map(str), max_size=4)
#: Rows that are stored, then ids that are pruned, then ids that are restored.
batches = st.lists(st.tuples(st.lists(rows, max_size=5), names, names), max_size=6)
bounds = st.none() | st.integers(0, 12)


class PlainHistory:
    """Says what a history must hold, by sorting and counting all of it each time."""

    def __init__(self) -> None:
        self.rows: list[tuple[datetime, Row]] = []
        self.pruned: set[object] = set()

    def append(self, batch: list[Row]) -> int:
        """Add rows that are new by their id; returns how many were."""
        first: dict[object, Row] = {}
        for row in batch:
            first.setdefault(row["id"], row)
        batch = list(first.values())
        times = (datetime.fromisoformat(str(row["timestamp"])) for row in batch if row["timestamp"])
        before = max((when for when, _ in self.rows), default=RECEIPT)
        before = min(before, next(times, before))
        known = {row["id"] for _, row in self.rows}
        new = 0
        for row in batch:
            if row["timestamp"] is not None:
                before = datetime.fromisoformat(str(row["timestamp"]))
            if row["id"] not in known:
                self.rows.append((before, row))
                new += 1
        return new

    def prune(self, ids: list[str]) -> int:
        """Hide rows; returns how many were shown."""
        before = len(self.pruned)
        self.pruned |= {row["id"] for _, row in self.rows} & set(ids)
        return len(self.pruned) - before

    def restore(self, ids: list[str]) -> int:
        """Show rows again; returns how many were hidden."""
        before = len(self.pruned)
        self.pruned -= set(ids)
        return before - len(self.pruned)

    def recent(
        self, conversation: str | None, max_rows: int | None, max_tokens: int | None
    ) -> tuple[list[object], int]:
        """Return ids, newest first, and the number of all rows."""
        members = [
            row
            for _, row in sorted(self.rows, key=lambda entry: entry[0])
            if conversation in (None, row["conversation_id"]) and row["id"] not in self.pruned
        ]
        ids: list[object] = []
        tokens = 0
        for row in reversed(members):
            if len(ids) == max_rows or (max_tokens is not None and tokens >= max_tokens):
                break
            ids.append(row["id"])
            tokens += 0 if row["role"] == "TOOL" else len(str(row["content"]).split())
        return ids, len(members)


@given(batches=batches, max_rows=bounds, max_tokens=bounds)
def test_pages_are_those_of_a_plain_list(
    batches: list[tuple[list[Row], list[str], list[str]]],
    max_rows: int | None,
    max_tokens: int | None,
) -> None:
    """Late, repeated, untimed and pruned rows leave every page as sorting all would make it."""
    plain = PlainHistory()

    async def compare() -> None:
        async with open_memory_store(Words, lambda: RECEIPT) as stores:
            for batch, pruned, restored in batches:
                assert await stores.history.append("o", batch) == plain.append(batch)
                assert await stores.history.prune("o", pruned) == plain.prune(pruned)
                assert await stores.history.restore("o", restored) == plain.restore(restored)
            for conversation in (None, "x", "y"):
                page = await stores.history.recent(
                    "o", conversation, max_rows=max_rows, max_tokens=max_tokens
                )
                found = [row["id"] for row in page.rows], page.total
                assert found == plain.recent(conversation, max_rows, max_tokens)

    asyncio.run(compare())


class Held(Words):
    """Does not come to the end of a large text before it may."""

    def __init__(self) -> None:
        self.may = threading.Event()

    def count(self, text: str) -> int:
        """Return the number of words."""
        if len(text) >= LARGE_BATCH:
            assert self.may.wait(10)
        return super().count(text)


async def test_small_batches_do_not_overtake() -> None:
    """While a large batch is read, its owner's next calls wait, and other owners' do not."""
    counter = Held()
    large, small = {"id": "large", "content": "x" * LARGE_BATCH}, {"id": "small", "content": "x"}
    async with open_memory_store(lambda: counter, lambda: RECEIPT) as stores:
        history = stores.history
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(history.append("o", [large, small]))
            tasks.create_task(history.append("o", [{**small, "id": "last"}]))
            tasks.create_task(history.append("p", [large]))
            forgotten = tasks.create_task(history.erase("p"))
            assert await history.append("q", [small]) == 1
            assert (await history.recent("o")).total == 0
            counter.may.set()

        rows = await history.get_history("o", limit=10)
        assert [row["id"] for row in rows] == ["last", "small", "large"]
        assert forgotten.result() == 1


async def test_stores_share_nothing() -> None:
    """Each opening gives an empty store."""
    async with open_memory_store(Words, lambda: RECEIPT) as first:
        await first.history.append("o", [{"id": "a"}])
        async with open_memory_store(Words, lambda: RECEIPT) as second:
            assert (await second.history.recent("o")).total == 0
