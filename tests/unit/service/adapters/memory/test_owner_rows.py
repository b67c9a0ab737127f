"""An owner's rows in memory: their order, and their totals."""

import json

import pytest

from service.adapters.memory.owner_rows import OwnerRows
from service.adapters.store_records import Record


def record(name: str, conversation_id: str | None = None) -> Record:
    """Return a row of three printed tokens."""
    return Record(
        id=name,
        conversation_id=conversation_id,
        written_at=None,
        body=json.dumps({"id": name}),
        tokens=9,
        printed_tokens=3,
        native_tokens=5,
    )


@pytest.fixture
def rows() -> OwnerRows:
    """Give rows of two conversations, whose times are not those of their arrival."""
    rows = OwnerRows()
    for name, conversation_id, sort_time in (
        *(("b", "x", 20), ("a", "x", 10)),
        *(("c", "y", 20), ("d", None, 30)),
    ):
        rows.add(record(name, conversation_id), sort_time)
    return rows


def shown(rows: OwnerRows, conversation_id: str | None = None) -> list[str]:
    """Return the ids of the rows that are shown, newest first."""
    return [row.record.id for row in reversed(rows.shown[conversation_id])]


def test_rows_stand_by_time_then_by_arrival(rows: OwnerRows) -> None:
    """In the list of their conversation, and in that of all."""
    assert shown(rows) == ["d", "c", "b", "a"]
    assert (shown(rows, "x"), shown(rows, "y"), shown(rows, "z")) == (["b", "a"], ["c"], [])
    assert rows.newest == 30


def test_a_row_is_added_once(rows: OwnerRows) -> None:
    """By its id; a later copy changes nothing, not even the newest time."""
    rows.add(record("a", "y"), 99)

    assert shown(rows) == ["d", "c", "b", "a"]
    assert rows.newest == 30


def test_what_is_hidden_comes_back_where_it_was(rows: OwnerRows) -> None:
    """In the list of its conversation, and in that of all, with their tokens."""
    rows.hide(rows.stored["b"])
    assert (shown(rows), shown(rows, "x")) == (["d", "c", "a"], ["a"])
    assert (rows.tokens["x"], rows.tokens[None], rows.native[None]) == (3, 9, 15)

    rows.show(rows.stored["b"])
    assert (shown(rows), shown(rows, "x")) == (["d", "c", "b", "a"], ["b", "a"])
    assert (rows.tokens["x"], rows.tokens[None], rows.native[None]) == (6, 12, 20)


def test_what_expires_stays_in_the_totals(rows: OwnerRows) -> None:
    """Other rows keep their positions; flags go with their rows."""
    rows.hide(rows.stored["a"])
    rows.pruned.add("a")
    rows.fallen.update("bc")

    rows.expire([rows.stored["a"], rows.stored["b"]])

    assert (shown(rows), shown(rows, "x")) == (["d", "c"], [])
    assert (rows.tokens["x"], rows.tokens[None]) == (3, 9)
    assert (rows.pruned, rows.fallen, rows.newest) == (set(), {"c"}, 30)
    rows.expire(list(rows.stored.values()))
    assert rows.newest is None
