"""Slips in the rows of a request are named: none is an error, and all change what is read."""

from datetime import UTC, datetime
from typing import Any

import pytest

from service.build.brought_rows import past_warnings
from service.wire.validation import MAX_COMPARED_KEYS

NOW = datetime(2025, 12, 10, 8, tzinfo=UTC)
EARLY, LATE, ZONED = "2025-12-01T08:00:00Z", "2025-12-02T08:00:00Z", "2025-12-10T09:00:00+01:00"


def said(**more: Any) -> dict[str, Any]:
    """Return a row that needs no warning, with more keys."""
    return {"role": "user", "content": "hi", **more}


@pytest.mark.parametrize(
    ("rows", "code", "place", "detail"),
    [
        ([said(timestampp=EARLY)], "unknown_key", "0/timestampp", "; did you mean timestamp?"),
        ([said(toolCalls=[])], "unknown_key", "0/toolCalls", "; did you mean tool_calls?"),
        (
            [said(ts=1, timestamp=EARLY), said(ts=1), said(ts=1)],
            "unknown_key",
            "1/ts",
            "; did you mean timestamp?",
        ),
        ([said(ts=1)], "unknown_key", "0/ts", "; did you mean timestamp?"),
        (
            [{"role": "ai", "tool_calls": [{}], "contentt": "x"}],
            "unknown_key",
            "0/contentt",
            "; did you mean content?",
        ),
        (
            [said(), said(metadata={"tool_call_ids": "c"})],
            "unknown_key",
            "1/metadata/tool_call_ids",
            "; did you mean tool_call_id?",
        ),
        (
            [said(timestamp=EARLY), said(timestamp="soon")],
            "unreadable_timestamp",
            "1/timestamp",
            "times of rows that can't be read: 1, such as 'soon'",
        ),
        (
            [said(timestamp=LATE), said(), said(timestamp=EARLY)],
            "rows_reordered",
            "2/timestamp",
            f"earlier than one before them: 1, such as '{EARLY}'",
        ),
        (
            [said(timestamp="2026-01-01T00:00:00Z")],
            "time_ahead",
            "0/timestamp",
            "rows later than the input, whose time is 2025-12-10T08:00:00Z: 1",
        ),
    ],
)
def test_a_slip_is_named_with_its_place(
    rows: list[dict[str, Any]], code: str, place: str, detail: str
) -> None:
    """And with the remedy."""
    (warning,) = past_warnings(rows, "/past", NOW)

    assert (warning.code, warning.pointer) == (code, f"/past/{place}")
    assert detail in warning.detail


def test_what_is_no_slip_is_not_named() -> None:
    """Keys of the sender's own, times in any zone, and clocks that differ by minutes."""
    rows = [
        said(timestamp=EARLY, names=["a"], name="Ada", parent_id="m0", user_id="u"),
        said(parts=[{"text": "x"}]),
        said(timestamp=None, metadata={"model": "m", "content": "x"}),
        said(timestamp=EARLY),
        said(timestamp=ZONED),
        said(timestamp="2025-12-10T08:04:00"),
    ]

    assert not [*past_warnings(rows, "/past", NOW)]
    assert not [*past_warnings(rows[:1], "/past", datetime.max.replace(tzinfo=UTC))]


def test_only_some_keys_of_a_sender_are_looked_at() -> None:
    """They are the sender's own, and may be many."""
    own = said(**{f"own_{index}": 1 for index in range(MAX_COMPARED_KEYS)})

    assert not [*past_warnings([own, said(timestampp=EARLY)], "/past", NOW)]
    assert [*past_warnings([said(own=1), said(timestampp=EARLY)], "/past", NOW)]
