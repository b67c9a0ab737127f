"""An owner's rows in memory: their order, and the marks that they bear."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from service.adapters.memory.owner_rows import OwnerRows
from service.adapters.store_records import Record
from service.ports.stores import Archiving, HistoryStats

NOW = datetime(2025, 12, 10, 8, 0, tzinfo=UTC)


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
    return [json.loads(row.body)["id"] for row in rows.newest_first(conversation_id)]


def archiving(days: int) -> Archiving:
    """Return what is written of rows, kept for so many days."""
    reasons = dict.fromkeys("abcd", "older")
    return Archiving(reasons=reasons, run_id="r", build_id="bld", retention=timedelta(days=days))


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


def test_what_is_pruned_comes_back_where_it_was(rows: OwnerRows) -> None:
    """Each row counts once, and what there is not counts for nothing."""
    assert rows.prune(["b", "b", "unknown"]) == 1
    assert rows.prune(["b"]) == 0
    assert (shown(rows), shown(rows, "x")) == (["d", "c", "a"], ["a"])

    assert rows.restore(["b", "a", "unknown"]) == 1
    assert (shown(rows), shown(rows, "x")) == (["d", "c", "b", "a"], ["b", "a"])


def test_a_row_falls_out_once(rows: OwnerRows) -> None:
    """In the order that was asked for; pruned rows are hidden already."""
    rows.prune(["c"])

    assert rows.flag_fallen(["b", "a", "b", "c", "unknown"]) == ["b", "a"]
    assert rows.flag_fallen(["a", "d"]) == ["d"]


def test_old_copies_go_when_new_ones_come(rows: OwnerRows) -> None:
    """Of those that are as old as they may get, none goes."""
    rows.archive_rows(["a"], archiving(days=2), NOW)
    rows.archive_rows(["b"], archiving(days=2), NOW + timedelta(days=2))
    assert [(each.row["id"], each.reason) for each in rows.archive] == [
        ("a", "older"),
        ("b", "older"),
    ]

    rows.archive_rows([], archiving(days=2), NOW + timedelta(days=3))
    assert [each.row["id"] for each in rows.archive] == ["b"]


def test_what_there_is_is_counted(rows: OwnerRows) -> None:
    """Tokens are those of rows that are shown."""
    assert OwnerRows().stats() == HistoryStats()
    rows.prune(["a"])
    rows.flag_fallen(["b", "c"])
    rows.archive_rows(["b"], archiving(days=1), NOW)

    expected = HistoryStats(rows=3, tokens=9, pruned=1, fallen=2, archived=1)
    assert rows.stats() == expected
