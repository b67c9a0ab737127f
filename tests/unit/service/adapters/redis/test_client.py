from datetime import UTC, datetime

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ResponseError

from service.adapters.redis.client import (
    ClosedError,
    GroupMissingError,
    ServerClock,
    bus_errors,
    entries,
)
from service.errors import BusError, ForbiddenError

FIELDS = {b"data": b"1"}
FOUND = [("requests", [("1-0", FIELDS), ("2-0", FIELDS)])]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (None, []),
        ([], []),
        ({}, []),
        ([[b"requests", [(b"1-0", FIELDS), (b"2-0", FIELDS)]]], FOUND),
        ({b"requests": [[(b"1-0", FIELDS), (b"2-0", FIELDS)]]}, FOUND),
        ({b"requests": [(b"1-0", FIELDS), (b"2-0", FIELDS)]}, FOUND),
        ({b"requests": [[]]}, [("requests", [])]),
        ([[b"requests", [(None, None), (b"1-0", FIELDS)]]], [("requests", [("1-0", FIELDS)])]),
    ],
)
def test_entries_of_any_protocol(reply: object, expected: object) -> None:
    """Streams read alike in every shape that redis-py gives them."""
    assert list(entries(reply)) == expected


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ResponseError("NOGROUP No such key"), GroupMissingError),
        (ResponseError("ERR Error running script: NOGROUP No such key"), GroupMissingError),
        (ResponseError("UNBLOCKED the stream key no longer exists"), GroupMissingError),
        (BusyLoadingError("loading"), BusError),
        (OutOfMemoryError("command not allowed", status_code="OOM"), ClosedError),
        (ResponseError("ERR Error running script: @user_script: 9: -OOM not now"), ClosedError),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), ClosedError),
        (ResponseError("ACL failure in script: No permissions to access a key"), ForbiddenError),
        (ResponseError("ERR The stream has exhausted the last possible ID"), BusError),
        (TimeoutError(), BusError),
        (ConnectionResetError("reset"), BusError),
    ],
)
def test_errors_are_ours(raised: Exception, expected: type[BusError]) -> None:
    """Whatever goes wrong with the server is a `BusError` that says what was tried."""
    with pytest.raises(BusError, match="trim: ") as caught, bus_errors("trim"):
        raise raised

    assert type(caught.value) is expected
    assert caught.value.__cause__ is raised


def test_entries_tell_when_they_were_written() -> None:
    """An entry's id is its time and place; one that is no time of day counts as written now."""
    clock = ServerClock()

    assert clock.written_at("1765353600123-4") == datetime(
        2025, 12, 10, 8, 0, 0, 123_004, tzinfo=UTC
    )
    assert clock.written_at("1765353600123-99999") < clock.written_at("1765353600124-0")
    before = clock.now()
    assert before <= clock.written_at("99999999999999999-0") <= clock.now()
