"""``ctxb bus`` over a real server."""

import asyncio
import json
from collections.abc import Callable

import pytest
import redis
from typer.testing import CliRunner, Result

from service.adapters.bus_options import BusOptions
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.scripts import LAST_ID
from service.cli.exits import Exit
from service.cli.root import app

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("alone")]

Ctxb = Callable[..., Result]


@pytest.fixture
def ctxb(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Ctxb:
    """Give a function that runs a command over a bus of its own."""
    monkeypatch.setenv("CTXB_BUS__URL", redis_url)
    monkeypatch.setenv("CTXB_BUS__PREFIX", prefix)
    return lambda *arguments: CliRunner(env={"COLUMNS": "100"}).invoke(app, arguments)


def test_the_number_of_shards_is_shown_and_set(ctxb: Ctxb, redis_url: str, prefix: str) -> None:
    """The key holds it as a decimal; entries left in former streams are reported."""
    assert "1 shard\n" in ctxb("bus", "shards").stdout
    submitted(redis_url, prefix)

    changed = ctxb("bus", "shards", "2")

    assert changed.exit_code == Exit.OK
    assert "2 shards\n" in changed.stdout
    assert "1 stream of an earlier layout with entries" in changed.stdout
    with redis.Redis.from_url(redis_url) as client:
        assert client.get(f"{prefix}context.build.shards") == b"2"
    shown = json.loads(ctxb("bus", "shards", "--json").stdout)
    assert shown["shards"] == 2
    assert {each["name"]: each["entries"] for each in shown["streams"]} == {
        "context.build.request": 1,
        "context.build.request.{0}": 0,
        "context.build.request.{1}": 0,
    }


def submitted(url: str, prefix: str) -> None:
    """Put a request into the stream."""

    async def submit() -> None:
        async with open_redis_bus(url, BusOptions(prefix=prefix)) as bus:
            await bus.submit(b"{}")

    asyncio.run(submit())


@pytest.mark.parametrize("number", ["0", "65", "many"])
def test_numbers_that_cannot_be_are_wrong_usage(ctxb: Ctxb, number: str) -> None:
    """The command refuses them before it asks a server."""
    assert ctxb("bus", "shards", number).exit_code == Exit.USAGE


def test_a_spoiled_key_is_reported(ctxb: Ctxb, redis_url: str, prefix: str) -> None:
    """As a mistake of the configuration, which setting the number mends."""
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"{prefix}context.build.shards", "three")
    assert ctxb("bus", "shards").exit_code == Exit.CONFIGURATION
    assert ctxb("bus", "shards", "3").exit_code == Exit.OK


def test_a_stream_that_takes_no_more_is_named_and_renumbered(
    ctxb: Ctxb, redis_url: str, prefix: str
) -> None:
    """By its name, once; the next time there is nothing to do."""
    with redis.Redis.from_url(redis_url) as client:
        client.xadd(f"{prefix}context.build.request", {"data": "{}"}, id=LAST_ID)

    checked = json.loads(ctxb("doctor", "--json").stdout)
    done = ctxb("bus", "renumber")

    (finding,) = (each for each in checked if each["what"] == f"{prefix}context.build.request")
    assert (finding["state"], "ctxb bus renumber" in finding["advice"]) == ("fail", True)
    assert (done.exit_code, done.stdout) == (Exit.OK, "context.build.request takes entries again\n")
    submitted(redis_url, prefix)
    assert ctxb("bus", "renumber").stdout == "no stream has run out of ids\n"
    assert json.loads(ctxb("bus", "renumber", "--json").stdout) == {"renumbered": []}
