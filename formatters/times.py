"""Parse the times that callers send, and format times for models."""

from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Final

#: One day, in minutes; the offset of a time zone is smaller.
DAY_MINUTES = 24 * 60

#: English in any locale; a name takes fewer tokens than a number between hyphens.
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def parse_timestamp(value: object) -> datetime | None:
    """Parse an ISO 8601 string or a datetime as aware UTC time; a naive time is taken as UTC.

    Returns None for anything else.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # a time at the very edge of the calendar
        return None


def parse_minutes_west(value: object) -> int | None:
    """Parse an offset in minutes west of UTC (JavaScript's sign), a number or a string.

    Returns None if it isn't a whole number, or is a day or more.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        minutes = float(value)
    except (ValueError, OverflowError):
        return None
    if not minutes.is_integer() or abs(minutes) >= DAY_MINUTES:
        return None
    return int(minutes)


def to_local_time(moment: datetime, minutes_west: int) -> datetime:
    """Convert an aware time to the zone that is ``minutes_west`` of UTC.

    A time too near the edge of the calendar to be shifted stays in UTC.
    """
    try:
        return moment.astimezone(_zone(minutes_west))
    except OverflowError:
        return moment.astimezone(UTC)


@cache
def _zone(minutes_west: int) -> timezone:
    """Return a zone; there are fewer than 3,000."""
    return timezone(timedelta(minutes=-minutes_west))


def format_stamp(moment: datetime | None, minutes_west: int = 0) -> str:
    """Return ``[2025-12-10 15:30]``, or ``[Unknown time]``."""
    if moment is None:
        return "[Unknown time]"
    local = to_local_time(moment, minutes_west).replace(tzinfo=None)
    return f"[{local.isoformat(sep=' ', timespec='minutes')}]"


def format_day(moment: datetime | None, minutes_west: int = 0) -> str:
    """Return ``[10 December 2025]``, or ``[unknown time]``."""
    if moment is None:
        return "[unknown time]"
    day = to_local_time(moment, minutes_west)
    return f"[{day.day} {_MONTHS[day.month - 1]} {day.year:04}]"


def format_clock_time(moment: datetime) -> str:
    """Return ``2025-12-10 16:00:00+08:00``, without fractions."""
    return moment.isoformat(sep=" ", timespec="seconds")
