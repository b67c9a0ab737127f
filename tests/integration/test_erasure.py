"""``ctxb history rm`` over a real server and a database that a worker has filled."""

import asyncio
import json
import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis
from typer.testing import CliRunner, Result

from service.adapters.sql.schema import metadata
from service.app import connect_client, open_bus, open_worker
from service.cli.exits import Exit
from service.cli.root import app
from service.config.load import load_settings
from service.config.settings import Settings
from service.connect import open_stores
from service.ports.bus import Bus
from service.wire.protocol import Topics
from tests.integration.bus_places import until
from tests.stores import Sql
from tests.support import row

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("alone")]

Ctxb = Callable[..., Result]

#: An owner, and a word of hers, that are nowhere else.
OWNER, WORD = "ana-karenina", "heffalump"


@pytest.fixture
def ctxb(redis_url: str, prefix: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> Ctxb:
    """Give a function that runs a command over a bus and a database of its own."""
    monkeypatch.setenv("CTXB_BUS__URL", redis_url)
    monkeypatch.setenv("CTXB_BUS__PREFIX", prefix)
    monkeypatch.setenv("CTXB_STORE__URL", sql.url)
    monkeypatch.setenv("CTXB_EVENTS__ARCHIVE", "true")
    monkeypatch.setenv("CTXB_MEMORY__LIMIT", "2")
    monkeypatch.setenv("CTXB_LOG__LEVEL", "error")

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner(env={"COLUMNS": "100"}).invoke(app, arguments, input=stdin)

    return run


def asking(owner: str, name: str) -> dict[str, Any]:
    """Return a request of an owner, with the word in it."""
    said = f"What did the {WORD} of {owner} say?"
    return {"id": name, "owner_key": owner, "content": {"current_input": said}}


async def fill(settings: Settings, owner: str) -> None:
    """Let a worker build contexts for an owner, dead-letter a request, and put a profile."""
    async with open_stores(settings) as stores:
        rows = [row(number, "human", f"{WORD} {number}") for number in range(6)]
        await stores.history.append(owner, rows, conversation_id=f"talk of {owner}")
        await stores.profiles.put(owner, {"prompt_overrides": {"friends_profile": WORD}})
    async with open_bus(settings) as connected, open_worker(settings, connected.bus) as worker:
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        async with connect_client(settings, connected.bus) as client:
            for number in range(3):
                await client.build(asking(owner, f"{owner}_{number}"), via="stream")
        result = {"id": "a", "owner_key": owner, "role": "AI", "content": f"A {WORD}"}
        await connected.bus.append(Topics.LLM_RESULTS, json.dumps(result).encode())
        await connected.bus.append(
            Topics.LLM_RESULTS, json.dumps({"owner_key": owner, "content": WORD}).encode()
        )
        await until(lambda: one_letter_of(connected.bus, owner))
        stop.set()
        await running
        await connected.bus.requests.trim()
        await connected.bus.results.trim()


async def one_letter_of(bus: Bus, owner: str) -> bool:
    """Return whether the dead letter has something of an owner."""
    return (await bus.forget(owner, dry_run=True)).dead_letters == 1


def left_on_the_bus(url: str, prefix: str) -> bytes:
    """Return all names and values of a bus, unpacked where they are packed."""
    with closing(redis.Redis.from_url(url)) as client:
        found: list[bytes] = []
        for name in client.scan_iter(match=f"{prefix}*"):
            kind = client.type(name)
            value: Any = client.get(name) if kind == b"string" else client.xrange(name)
            found += [name, zlib.decompress(value) if kind == b"string" else repr(value).encode()]
    return b"\n".join(found)


def left_in_the_tables(sql: Sql) -> str:
    """Return all rows of all tables."""
    return repr([sql.ask(f"SELECT * FROM {name}") for name in metadata.tables])  # noqa: S608 - ours


def test_nothing_of_an_erased_owner_is_left(
    ctxb: Ctxb, sql: Sql, redis_url: str, prefix: str
) -> None:
    """In no table, key, stream or value; what another owner has stays as it was."""
    settings = load_settings()
    for owner in (OWNER, "bob"):
        asyncio.run(fill(settings, owner))
    assert OWNER.encode() in left_on_the_bus(redis_url, prefix)
    assert OWNER in left_in_the_tables(sql)
    bobs = json.loads(ctxb("history", "rm", "bob", "--dry-run", "--json").stdout)

    counted = ctxb("history", "rm", OWNER, "--dry-run", "--json")
    assert counted.exit_code == Exit.OK, counted.stderr
    erased = ctxb("history", "rm", OWNER, "--yes", "--json")

    reported = json.loads(erased.stdout)
    assert {**reported, "dry_run": True} == json.loads(counted.stdout) == bobs
    assert reported["store"]["rows"] == 10
    assert reported["store"]["fallen"] == reported["store"]["archived"] > 0
    assert reported["store"]["profiles"] == 1
    bus = {"results": 3, "reports": 3, "dead_letters": 1, "unreadable": 0, "waiting": 0}
    assert reported["bus"] == bus
    assert OWNER.encode() not in left_on_the_bus(redis_url, prefix)
    assert OWNER not in left_in_the_tables(sql)
    assert json.loads(ctxb("history", "rm", "bob", "--dry-run", "--json").stdout) == bobs


def test_a_second_run_finds_what_came_meanwhile(ctxb: Ctxb) -> None:
    """A build in flight stores its rows after an erasure; the next one takes them."""
    settings = load_settings()
    first = ctxb("history", "rm", OWNER, "--yes")
    assert first.exit_code == Exit.OK, first.stderr
    asyncio.run(fill(settings, OWNER))

    second = json.loads(ctxb("history", "rm", OWNER, "--yes", "--json").stdout)
    third = json.loads(ctxb("history", "rm", OWNER, "--yes", "--json").stdout)

    assert second["store"]["rows"] == 10
    assert not any({**third["store"], **third["bus"]}.values())


def test_erasing_needs_confirmation(ctxb: Ctxb, prefix: str) -> None:
    """Without --yes nobody is erased unless confirmed; what has to stay is reported."""

    async def prepare() -> None:
        settings = load_settings()
        async with open_stores(settings) as stores, open_bus(settings) as connected:
            await stores.history.append(OWNER, [row(1, "human", WORD)])
            await connected.bus.submit(json.dumps(asking(OWNER, "msg_1")).encode())
            await connected.bus.submit(b"nobody's")
            for delivery in await connected.bus.requests.receive(2, wait=1):
                if delivery.payload == b"nobody's":
                    await connected.bus.requests.dead_letter(delivery, "not JSON")

    asyncio.run(prepare())

    for stdin in ("n\n", ""):
        refused = ctxb("history", "rm", OWNER, stdin=stdin)
        assert refused.exit_code == Exit.FAILED
        assert OWNER in refused.stderr
    done = ctxb("history", "rm", OWNER, stdin="y\n")
    assert done.exit_code == Exit.OK, done.stderr
    assert "rows" in done.stdout
    assert "still on the streams: 1 entry of the owner" in done.stdout
    assert "1 dead letter without a readable owner" in done.stdout
    assert "replies that nobody has read yet stay" in " ".join(done.stdout.split())
    assert "Found" in ctxb("history", "rm", OWNER, "--dry-run").stdout


def test_a_bus_that_is_away_leaves_all_as_it_is(
    ctxb: Ctxb, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner is not erased by half: the store comes after the bus."""

    async def prepare() -> None:
        async with open_stores(load_settings()) as stores:
            await stores.history.append(OWNER, [row(1, "human", WORD)])

    asyncio.run(prepare())
    monkeypatch.setenv("CTXB_BUS__URL", "redis://127.0.0.1:1")
    failed = ctxb("history", "rm", OWNER, "--yes")
    assert failed.exit_code == Exit.UNREACHABLE
    assert WORD in left_in_the_tables(sql)


def test_what_is_not_configured_is_not_looked_at(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is said: a store alone, a bus alone; with neither there is nothing to do."""
    monkeypatch.delenv("CTXB_BUS__URL")
    store_alone = ctxb("history", "rm", OWNER, "--yes", "--json")
    assert json.loads(store_alone.stdout)["bus"] is None
    assert "the bus was skipped" in ctxb("history", "rm", OWNER, "--yes").stdout
    monkeypatch.delenv("CTXB_STORE__URL")
    neither = ctxb("history", "rm", OWNER, "--yes")
    assert neither.exit_code == Exit.CONFIGURATION
    assert "neither a store nor a bus" in neither.stderr


def test_a_bus_alone_is_enough(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each worker has a store in its memory."""
    monkeypatch.delenv("CTXB_STORE__URL")
    assert json.loads(ctxb("history", "rm", OWNER, "--yes", "--json").stdout)["store"] is None
    assert "the store was skipped" in ctxb("history", "rm", OWNER, "--yes").stdout
