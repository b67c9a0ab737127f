import json

import pytest

from formatters.rows import StoredRows, read_rows
from service.build.row_cache import COPIES, ROW_BYTES, RowCache

ROWS = [{"id": f"m{number}", "role": "HUMAN", "content": f"{number} hills"} for number in range(9)]
STORED = StoredRows([json.dumps(row) for row in ROWS])


def test_a_stored_row_is_read_once() -> None:
    """Its message is the same object as long as its JSON is the same."""
    cache = RowCache()
    first = cache.read(STORED)
    changed = StoredRows([json.dumps({**ROWS[0], "content": "valleys"}), *STORED.bodies[1:]])

    assert first == read_rows(ROWS)
    assert all(one is other for one, other in zip(cache.read(STORED), first, strict=True))
    assert [message.content for message in cache.read(changed)[:2]] == ["valleys", "1 hills"]


def test_rows_that_were_read_are_not_new() -> None:
    """Rows of callers always are, since they may have changed."""
    cache = RowCache()
    cache.read(STORED[:4])

    assert (cache.count_new(STORED), cache.count_new(STORED[:4])) == (5, 0)
    assert cache.count_new(ROWS) == len(ROWS)


def test_rows_of_callers_are_read_again() -> None:
    """Callers may change them in the meantime."""
    cache, row = RowCache(), dict(ROWS[0])
    first = cache.read([row])
    row["content"] = "valleys"

    assert [first[0].content, cache.read([row])[0].content] == ["0 hills", "valleys"]


@pytest.mark.parametrize("size", [0, 1, 4, 100])
def test_the_memory_is_bounded(size: int) -> None:
    """Rows that are read again stay; too large ones are never kept."""
    cache = RowCache(size * (ROW_BYTES + COPIES * 200))
    for body in STORED.bodies:
        kept = cache.read(StoredRows([STORED.bodies[0], body]))

        assert [message.id for message in kept] == ["m0", json.loads(body)["id"]]
    again = cache.read(StoredRows(STORED.bodies[:1]))[0]
    known = cache.read(STORED)

    assert (again is kept[0]) == (size >= 4)
    assert [message.id for message in known] == [row["id"] for row in ROWS]
    assert (known[1] is cache.read(STORED)[1]) == (size == 100)


def test_what_is_dropped_keeps_nothing() -> None:
    """What is made of a message refers to it: both would wait for the garbage collector."""
    cache = RowCache(4 * (ROW_BYTES + COPIES * 200))
    (first,) = cache.read(STORED[:1])
    assert first.made is not None
    first.made["turn"] = first
    cache.read(STORED)

    assert first.made == {}
    assert cache.read(STORED)[0] is not first
