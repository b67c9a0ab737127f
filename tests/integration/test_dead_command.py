"""``ctxb dead`` over a real server."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import CliRunner, Result

from service.app import open_bus
from service.cli import dead
from service.cli.exits import Exit
from service.cli.root import app
from service.config.load import load_settings
from service.observe.logs import owner_hash
from service.ports.bus import Bus
from tests.integration.bus_places import payloads, received

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("alone")]

Ctxb = Callable[..., Result]


@pytest.fixture
def ctxb(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Ctxb:
    """Give a function that runs a command over a bus of its own."""
    monkeypatch.setenv("CTXB_BUS__URL", redis_url)
    monkeypatch.setenv("CTXB_BUS__PREFIX", prefix)
    monkeypatch.setenv("CTXB_LOG__LEVEL", "error")

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner(env={"COLUMNS": "100"}).invoke(app, arguments, input=stdin)

    return run


def on_bus(ask: Callable[[Bus], Awaitable[list[bytes]]]) -> list[bytes]:
    """Ask the configured bus."""

    async def asked() -> list[bytes]:
        async with open_bus(load_settings()) as connected:
            return await ask(connected.bus)

    return asyncio.run(asked())


def bury(reasons: dict[bytes, str]) -> list[str]:
    """Give requests up, each for its reason; returns the ids of the entries."""

    async def buried(bus: Bus) -> list[bytes]:
        for payload, reason in reasons.items():
            await bus.submit(payload)
            (delivery,) = await received(bus)
            await bus.requests.dead_letter(delivery, reason)
        return [letter.id.encode() async for letter in bus.dead_letters.scan()]

    return [each.decode() for each in on_bus(buried)]


def waiting() -> list[bytes]:
    """Return the payloads of the requests that wait for a worker."""

    async def read(bus: Bus) -> list[bytes]:
        return payloads(await received(bus))

    return on_bus(read)


def test_entries_are_listed_and_shown(ctxb: Ctxb) -> None:
    """The newest last, at most the requested number, by reason; one of them with its payload."""
    request = b'{"id": "msg_1", "owner_key": "ana", "content": {"current_input": "Hello"}}'
    first, second, third = bury({b"?": "not JSON", request: "delivered 3 times", b"!": "not JSON"})

    table = ctxb("dead", "ls")
    assert table.exit_code == Exit.OK, table.stderr
    assert [table.stdout.index(each) for each in (first, second, third)] == sorted(
        table.stdout.index(each) for each in (first, second, third)
    )
    assert owner_hash("ana") in table.stdout
    assert "ana" not in table.stdout
    assert "ana" in ctxb("dead", "ls", "--owners").stdout
    two = json.loads(ctxb("dead", "ls", "--limit", "2", "--json").stdout)
    assert [each["id"] for each in two] == [second, third]
    bad = json.loads(ctxb("dead", "ls", "--reason", "NOT json", "--json").stdout)
    assert [each["id"] for each in bad] == [first, third]

    shown = ctxb("dead", "show", second)
    assert shown.stdout.endswith(f"\n{request.decode()}\n")
    assert "reason: delivered 3 times\n" in shown.stdout
    cut = json.loads(ctxb("dead", "show", second, "--max-bytes", "5", "--json").stdout)
    assert (cut["payload"], cut["bytes"]) == ('{"id"', len(request))
    missing = ctxb("dead", "show", "1-1")
    assert (missing.exit_code, missing.stdout) == (Exit.FAILED, "")
    assert "1-1" in missing.stderr


def test_an_empty_dead_letter_is_listed(ctxb: Ctxb) -> None:
    """As nothing."""
    empty = ctxb("dead", "ls")
    assert (empty.exit_code, empty.stdout) == (Exit.OK, "No such dead letters.\n")
    assert json.loads(ctxb("dead", "ls", "--json").stdout) == []
    done = ctxb("dead", "retry", "--all")
    assert done.stdout == "0 entries put back\n"


def test_named_entries_are_sent_again(ctxb: Ctxb) -> None:
    """Each once; missing ones are reported."""
    first, second = bury({b"1": "a", b"2": "b"})

    done = ctxb("dead", "retry", second, "1-1", second)

    assert done.exit_code == Exit.FAILED
    assert done.stdout == "1 entry put back; 1 not: gone, or from a stream that isn't ours\n"
    assert done.stderr == "not put back: 1-1\n"
    assert waiting() == [b"2"]
    assert [each["id"] for each in json.loads(ctxb("dead", "ls", "--json").stdout)] == [first]


def test_all_entries_are_sent_again(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a reason, in their order and in several batches; then the others."""
    monkeypatch.setattr(dead, "BATCH", 2)
    bury({b"1": "late", b"2": "odd", b"3": "too late", b"4": "LATE"})

    some = ctxb("dead", "retry", "--all", "--reason", "late")
    assert some.stdout == "3 entries put back\n", some.stderr
    assert waiting() == [b"1", b"3", b"4"]
    assert ctxb("dead", "retry", "--all").stdout == "1 entry put back\n"
    assert waiting() == [b"2"]


def test_entries_are_dropped_when_it_is_sure(ctxb: Ctxb) -> None:
    """After a confirmation, or with --yes."""
    first, second, third = bury({b"1": "a", b"2": "b", b"3": "c"})

    refused = ctxb("dead", "drop", "--all", stdin="n\n")
    assert refused.exit_code == Exit.FAILED
    assert "all entries that match" in refused.stderr
    asked = ctxb("dead", "drop", "1-1", first, "2-2", stdin="y\n")
    assert asked.exit_code == Exit.FAILED
    assert asked.stdout.endswith("1 entry dropped; 2 not: gone\n")
    assert "3 entries" in asked.stderr
    assert asked.stderr.endswith("not dropped: 1-1, 2-2\n")
    left = json.loads(ctxb("dead", "ls", "--json").stdout)
    assert [each["id"] for each in left] == [second, third]
    assert ctxb("dead", "drop", second, "--yes").exit_code == Exit.OK
    assert ctxb("dead", "drop", "--all", "--yes").stdout == "1 entry dropped\n"
    assert json.loads(ctxb("dead", "ls", "--json").stdout) == []
    assert waiting() == []
