from datetime import UTC, datetime, timedelta, timezone

import pytest

from formatters.times import (
    format_clock_time,
    format_day,
    format_stamp,
    parse_minutes_west,
    parse_timestamp,
    to_local_time,
)

MOMENT = datetime(2025, 12, 10, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "written",
    [
        "2025-12-10T15:30:00Z",
        "2025-12-10T15:30:00+00:00",
        "2025-12-10T15:30:00",
        "2025-12-10 15:30",
        " 2025-12-10T15:30:00.000Z\n",
        "2025-12-10T23:30:00+08:00",
        "2025-12-10T10:00:00-05:30",
        datetime(2025, 12, 10, 15, 30),  # noqa: DTZ001 - a naive one is what is tried
        datetime(2025, 12, 10, 23, 30, tzinfo=timezone(timedelta(hours=8))),
    ],
)
def test_timestamps_become_utc(written: object) -> None:
    """A naive time is UTC, and one with an offset is converted once."""
    moment = parse_timestamp(written)

    assert moment == MOMENT
    assert moment.tzinfo is UTC


@pytest.mark.parametrize(
    "written",
    [
        None,
        "",
        "yesterday",
        "2025-13-10T15:30:00Z",
        "2025-12-10T25:30:00Z",
        "2025-12-10T15:30:00+99:00",
        "\ud83d",
        1765380600,
        1.5,
        True,
        ["2025-12-10"],
        {},
        b"2025-12-10",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:00-14:00",
    ],
)
def test_what_is_no_timestamp(written: object) -> None:
    """What cannot be read as a time is none, and never an error."""
    assert parse_timestamp(written) is None


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        (-480, -480),
        ("-480", -480),
        (" +210 ", 210),
        (0, 0),
        ("0", 0),
        (-480.0, -480),
        ("-480.0", -480),
        (1439, 1439),
        (-1439, -1439),
    ],
)
def test_offsets(written: object, minutes: int) -> None:
    """An offset is a whole number of minutes, as a number or a string."""
    assert parse_minutes_west(written) == minutes


@pytest.mark.parametrize(
    "written",
    [
        None,
        "",
        "x",
        "08:00",
        True,
        False,
        0.5,
        "0.5",
        1440,
        -1440,
        "99999",
        10**400,
        "1e400",
        float("nan"),
        float("inf"),
        "nan",
        [0],
        {},
    ],
)
def test_what_is_no_offset(written: object) -> None:
    """Garbage and a day or more are no offset."""
    assert parse_minutes_west(written) is None


@pytest.mark.parametrize(
    ("utc", "west", "local"),
    [
        ("2025-12-10T08:00:00Z", -480, "2025-12-10 16:00:00+08:00"),
        ("2025-12-10T08:00:00Z", -330, "2025-12-10 13:30:00+05:30"),
        ("2025-12-10T08:00:00Z", 210, "2025-12-10 04:30:00-03:30"),
        ("2025-12-31T20:00:00Z", -480, "2026-01-01 04:00:00+08:00"),
        ("2025-12-10T08:00:00Z", 0, "2025-12-10 08:00:00+00:00"),
        ("2025-12-10T08:00:00.999999Z", 0, "2025-12-10 08:00:00+00:00"),
        ("2025-12-10T08:00:00+08:00", -480, "2025-12-10 08:00:00+08:00"),
        ("2024-02-29T23:30:00Z", -60, "2024-03-01 00:30:00+01:00"),
    ],
)
def test_local_time(utc: str, west: int, local: str) -> None:
    """Local time is UTC less the minutes west, shown without fractions."""
    moment = parse_timestamp(utc)

    assert moment is not None
    assert format_clock_time(to_local_time(moment, west)) == local


@pytest.mark.parametrize(("edge", "west"), [("0001-01-01", 60), ("9999-12-31T23:59", -60)])
def test_the_edge_of_the_calendar(edge: str, west: int) -> None:
    """A moment that no zone can shift stays in UTC."""
    moment = parse_timestamp(edge)

    assert moment is not None
    assert to_local_time(moment, west).isoformat() == moment.isoformat()


@pytest.mark.parametrize(
    ("moment", "west", "shown"),
    [
        (MOMENT, 0, "[2025-12-10 15:30]"),
        (MOMENT.replace(second=59, microsecond=999), 0, "[2025-12-10 15:30]"),
        (MOMENT, -540, "[2025-12-11 00:30]"),
        (datetime(5, 1, 2, tzinfo=UTC), 0, "[0005-01-02 00:00]"),
        (None, -540, "[Unknown time]"),
    ],
)
def test_stamps(moment: datetime | None, west: int, shown: str) -> None:
    """A stamp has minutes and a year of four digits; a missing time is said to be unknown."""
    assert format_stamp(moment, west) == shown


@pytest.mark.parametrize(
    ("moment", "west", "shown"),
    [
        (MOMENT, 0, "[10 December 2025]"),
        (MOMENT, -540, "[11 December 2025]"),
        (datetime(5, 1, 2, tzinfo=UTC), 0, "[2 January 0005]"),
        (None, -540, "[unknown time]"),
    ],
)
def test_days(moment: datetime | None, west: int, shown: str) -> None:
    """A day is that of the zone; a missing time is said to be unknown."""
    assert format_day(moment, west) == shown
