from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.connection import (
    GroupMissingError,
    ServerClock,
    WritesRefusedError,
    bus_errors,
    make_clients,
    tls_arguments,
)
from service.adapters.redis.driver import read_entries
from service.config.endpoints import TlsSettings
from service.errors import BusError, ConfigError, ForbiddenError

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
    assert list(read_entries(reply)) == expected


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ResponseError("NOGROUP No such key"), GroupMissingError),
        (ResponseError("ERR Error running script: NOGROUP No such key"), GroupMissingError),
        (ResponseError("UNBLOCKED the stream key no longer exists"), GroupMissingError),
        (BusyLoadingError("loading"), BusError),
        (OutOfMemoryError("command not allowed", status_code="OOM"), WritesRefusedError),
        (
            ResponseError("ERR Error running script: @user_script: 9: -OOM not now"),
            WritesRefusedError,
        ),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), WritesRefusedError),
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


@pytest.mark.parametrize("protocol", [2, 3])
async def test_reads_that_wait_have_no_time_limit_of_their_own(protocol: int) -> None:
    """Whatever the URL says: it is meant for commands that answer at once."""
    async with AsyncExitStack() as stack:
        url = f"redis://127.0.0.1:1?protocol={protocol}&socket_timeout=0.2"
        clients = make_clients(stack, url, BusOptions())
        limits = [
            client.connection_pool.connection_kwargs["socket_timeout"]
            for client in (clients.commands, clients.blocking)
        ]

    assert limits == [0.2, None]


def test_entries_tell_when_they_were_written() -> None:
    """An entry's id is its time and place; one that is no time of day counts as written now."""
    clock = ServerClock()

    assert clock.written_at("1765353600123-4") == datetime(
        2025, 12, 10, 8, 0, 0, 123_004, tzinfo=UTC
    )
    assert clock.written_at("1765353600123-99999") < clock.written_at("1765353600124-0")
    before = clock.now()
    assert before <= clock.written_at("99999999999999999-0") <= clock.now()


def test_nothing_is_said_of_tls_where_nothing_is_set() -> None:
    """What a URL says in its query stands then."""
    assert tls_arguments("redis://host", TlsSettings()) == {}
    assert tls_arguments("rediss://host", TlsSettings()) == {}
    assert tls_arguments("rediss://host", TlsSettings(check_hostname=False)) == {
        "ssl_check_hostname": False
    }


def test_settings_without_tls_are_a_mistake() -> None:
    """Nobody who names an authority wants to talk in the clear."""
    with pytest.raises(ConfigError, match=r"bus\.tls"):
        tls_arguments("redis://host", TlsSettings(check_hostname=False))


def test_a_file_that_is_not_there_is_named() -> None:
    """With its setting and path."""
    with pytest.raises(ConfigError, match=r"bus\.tls\.ca_file: nowhere/ca\.pem"):
        tls_arguments("rediss://host", TlsSettings(ca_file=Path("nowhere/ca.pem")))
