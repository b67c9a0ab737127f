"""Times: read what callers send, show what models read."""

from datetime import UTC, datetime, timedelta, timezone

#: One day, in minutes: an offset this large or larger names no time zone.
DAY_MINUTES = 24 * 60


def parse_timestamp(value: object) -> datetime | None:
    """Read an ISO 8601 string or a datetime as aware UTC time; naive is UTC.

    Returns None for anything else, and for what cannot be read.
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
    except OverflowError:  # a moment at the very edge of the calendar
        return None


def parse_minutes_west(value: object) -> int | None:
    """Read an offset in minutes west of UTC (JavaScript's sign); int or string.

    Returns None where it is no whole number, or a day or more.
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
    """Show an aware moment in the zone that lies so many minutes west of UTC.

    A moment too near the edge of the calendar to be shifted stays in UTC.
    """
    try:
        return moment.astimezone(timezone(timedelta(minutes=-minutes_west)))
    except OverflowError:
        return moment.astimezone(UTC)


def format_stamp(moment: datetime | None, minutes_west: int = 0) -> str:
    """Return ``[2025-12-10 15:30]``, or ``[Unknown time]``."""
    if moment is None:
        return "[Unknown time]"
    local = to_local_time(moment, minutes_west).replace(tzinfo=None)
    return f"[{local.isoformat(sep=' ', timespec='minutes')}]"


def format_day(moment: datetime | None, minutes_west: int = 0) -> str:
    """Return ``[2025-12-10]``, or ``[unknown time]``."""
    if moment is None:
        return "[unknown time]"
    return f"[{to_local_time(moment, minutes_west).date().isoformat()}]"


def format_clock_time(moment: datetime) -> str:
    """Return ``2025-12-10 16:00:00+08:00``, without fractions."""
    return moment.isoformat(sep=" ", timespec="seconds")
