from collections.abc import AsyncIterator

import pytest
from fakeredis import FakeAsyncRedis
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ResponseError

from service.adapters.redis.driver import (
    Call,
    GroupMissingError,
    UnusableKeyError,
    WritesRefusedError,
    bus_errors,
    execute,
)
from service.adapters.redis.scripts import ENQUEUE, LEAVE, TRIM
from service.adapters.redis.servers import raise_first_error
from service.errors import BusError, ForbiddenError


@pytest.fixture
async def client() -> AsyncIterator[FakeAsyncRedis]:
    """Give a client of a server that is none."""
    async with FakeAsyncRedis() as opened:
        yield opened


def heard(payload: str, by: str, max_backlog: int = 10) -> Call:
    """Enqueue a payload that a worker has heard."""
    return Call(ENQUEUE, ("heard", "requests"), (by, 1000, max_backlog, payload))


async def test_unknown_scripts_are_sent_in_full(client: FakeAsyncRedis) -> None:
    """The first run of a script loads it, and later ones name it; replies keep their order."""
    first = await execute(client, [heard("1", "one"), heard("1", "two"), heard("1", "two")])
    second = await execute(client, [heard("1", "one")])

    assert first == [b"enqueued", b"known", b"enqueued"]
    assert second == [b"known"]
    assert await client.xlen("requests") == 2


async def test_nothing_to_run(client: FakeAsyncRedis) -> None:
    """No calls, no round trip."""
    assert await execute(client, []) == []


async def test_error_does_not_stop_the_others(client: FakeAsyncRedis) -> None:
    """A script that fails is raised after all the others have run."""
    await client.set("text", "no stream")
    broken = Call(TRIM, ("text",), ())

    with pytest.raises(ResponseError):
        raise_first_error(await execute(client, [broken, heard("1", "one")]))

    assert await client.xlen("requests") == 1


async def test_leaving_an_unknown_group_is_an_error(client: FakeAsyncRedis) -> None:
    """A script names the missing group in its error, so that it can be created."""
    await client.xadd("requests", {"data": "1"})

    with pytest.raises(ResponseError, match="NOGROUP"):
        raise_first_error(await execute(client, [Call(LEAVE, ("requests",), ("builders", "one"))]))


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
        (ResponseError("ERR unknown command"), BusError),
        (ResponseError("ERR The stream has exhausted the last possible ID"), UnusableKeyError),
        (ResponseError("WRONGTYPE Operation against a key"), UnusableKeyError),
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
