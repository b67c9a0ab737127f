"""What is wrong with an installation is found, with what to do about it."""

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import Result

from service.adapters.sql.migrate import upgrade
from service.build import plugins
from service.cli import bus_checks, checks, doctor
from service.cli.exits import Exit
from service.cli.findings import Finding, fail, ok, print_findings, warn, without_secrets
from service.config.settings import BusSettings, Settings
from service.errors import BusError, ForbiddenError
from service.ports.status import (
    BusState,
    BusSurvey,
    ServerState,
    StoreState,
    StreamState,
    UnusableKey,
    WorkerState,
)
from tests.support import hide_package

Ctxb = Callable[..., Result]

SERVER = ServerState(
    product="redis",
    version="7.2.4",
    durable=True,
    eviction="noeviction",
    used_bytes=10,
    most_bytes=100,
    primary=True,
)
STREAM = StreamState(
    name="context.build.request",
    entries=5,
    added=9,
    lag=3,
    pending=2,
    oldest_pending_seconds=1.0,
    grouped=True,
)
BUS = BusState(
    shards=1,
    requests=[STREAM],
    recalls=replace(STREAM, name="context.recall.request"),
    results=[],
    workers=[],
    listening=1,
    dead_letters=0,
)


def states(findings: Any) -> dict[str, str]:
    """Return what was found, by what was looked at."""
    return {each.what: each.state for each in findings}


def test_a_server_that_is_set_up_as_documented_is_right() -> None:
    """Nothing is said against it."""
    assert set(states(bus_checks.check_server(SERVER)).values()) == {"ok"}


@pytest.mark.parametrize(
    ("change", "what", "state"),
    [
        ({"version": "6.0.16"}, "bus server", "fail"),
        ({"primary": False}, "bus server", "fail"),
        ({"durable": False}, "bus persistence", "warn"),
        ({"eviction": "allkeys-lru"}, "bus eviction", "fail"),
        ({"eviction": "allkeys-lru", "most_bytes": 0}, "bus eviction", "warn"),
        ({"used_bytes": 90}, "bus memory", "warn"),
    ],
)
def test_each_setting_of_a_server_matters(change: dict[str, Any], what: str, state: str) -> None:
    """It is named alone, with advice."""
    found = [
        each for each in bus_checks.check_server(replace(SERVER, **change)) if each.state != "ok"
    ]
    assert states(found) == {what: state}
    assert all(each.advice for each in found)


def test_any_version_of_valkey_will_do() -> None:
    """Its numbers begin where those of Redis ended."""
    assert states(bus_checks.check_server(replace(SERVER, product="valkey", version="8.0.1")))[
        "bus server"
    ] == ("ok")


@pytest.mark.parametrize(
    ("change", "what", "state"),
    [
        ({"grouped": False}, STREAM.name, "fail"),
        ({"oldest_pending_seconds": 99.0}, STREAM.name, "warn"),
        ({}, "bus streams", "ok"),
    ],
)
def test_streams_that_are_stuck_are_named(change: dict[str, Any], what: str, state: str) -> None:
    """By how long something is in work, or that nobody reads."""
    changed = replace(STREAM, **change)
    for seen in (replace(BUS, requests=[changed]), replace(BUS, recalls=changed)):
        assert states(bus_checks.check_streams(seen, 5.0)) == {what: state}


def test_streams_of_former_shards_are_reported() -> None:
    """Somebody goes by an outdated number."""
    seen = replace(BUS, requests=[STREAM, replace(STREAM, name="context.build.request.{7}")])
    (found,) = bus_checks.check_streams(seen, 5.0)
    assert (found.state, "context.build.request.{7}" in found.found) == ("warn", True)


def test_workers_that_fell_silent_are_reported() -> None:
    """Only with something in work: one that has ended properly leaves nothing."""
    workers = [
        WorkerState(name="gone", pending=2, silent_seconds=99.0),
        WorkerState(name="busy", pending=2, silent_seconds=0.1),
        WorkerState(name="idle", pending=0, silent_seconds=99.0),
    ]
    found = list(bus_checks.check_workers(replace(BUS, workers=workers), 5.0))
    assert [each.state for each in found] == ["ok", "warn"]
    assert found[1].found.endswith(": gone")
    assert states(bus_checks.check_workers(replace(BUS, listening=0), 5.0)) == {"workers": "warn"}


@pytest.mark.parametrize(
    ("key", "expected", "kind", "found", "advice"),
    [
        ("p.context.build.shards", "string", "list", "a list, not a string", "ctxb bus shards N"),
        ("context.build.dead", "stream", "string", "a string, not a stream", "RENAME"),
        ("llm.results", "stream", None, "the greatest possible id", "ctxb bus renumber"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(
    key: str, expected: str, kind: str | None, found: str, advice: str
) -> None:
    """With its type, the type that it should have, and what to do."""
    finding = bus_checks.describe_key(UnusableKey(key=key, expected=expected, found=kind))
    assert (finding.what, finding.state) == (key, "fail")
    assert found in finding.found
    assert advice in finding.advice


class Hidden:
    """A bus with a key that can't be used, whose values can't be searched."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def unusable_keys(self) -> list[UnusableKey]:
        """Return the key."""
        return [UnusableKey(key="llm.results", expected="stream", found="set")]

    async def unusable_values(self) -> AsyncIterator[UnusableKey]:
        """Fail after one."""
        yield UnusableKey(key="heard", expected="set", found="list")
        raise self._error


@pytest.mark.parametrize("error", [ForbiddenError("no"), TimeoutError()])
async def test_a_search_that_ends_early_is_a_warning(error: Exception) -> None:
    """What was found until then is named."""
    survey = cast(BusSurvey, cast(Any, Hidden(error)))
    found = [each async for each in bus_checks.check_keys(survey)]
    assert states(found) == {"bus keys": "warn", "llm.results": "fail", "heard": "fail"}


@pytest.mark.parametrize(("workers", "state"), [(2, "ok"), (3, "fail")])
def test_workers_together_need_connections(workers: int, state: str) -> None:
    """The pool of each, times their number, against what the server offers."""
    seen = StoreState(
        rows=1, owners=1, summaries=0, bytes=1, exact=False, connections=25, connected=4
    )
    assert states(checks.check_database(seen, Settings(), workers)) == {"store connections": state}


@pytest.mark.parametrize(("listening", "state"), [(0, "warn"), (1, "warn"), (2, "fail")])
async def test_workers_with_a_history_each_are_a_failure(
    listening: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store in memory is shared by none of them; one worker alone only forgets."""

    @asynccontextmanager
    async def open_survey(_settings: Settings) -> AsyncIterator[Listening]:
        yield Listening(listening)

    monkeypatch.setattr(bus_checks, "open_survey", open_survey)
    settings = Settings(bus=BusSettings.model_validate({"url": "redis://localhost"}))
    (found,) = [finding async for finding in checks.check_configured_store(settings)]

    assert (found.what, found.state) == ("store", state)
    assert "store.url" in found.advice


class Listening:
    """A bus with this number of workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    async def state(self) -> BusState:
        """Return it."""
        return replace(BUS, listening=self._workers)


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    """So is a folder that isn't there."""
    assert checks.check_disk("disk", tmp_path).state in {"ok", "warn"}
    assert checks.check_disk("disk", tmp_path / "nowhere").state == "fail"


async def test_a_store_that_cannot_be_written_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite can't read it, either."""
    file = tmp_path / "history.db"
    file.touch()
    settings = Settings.model_validate({"store": {"url": f"sqlite:///{file}"}})
    monkeypatch.setattr(checks, "check_disk", lambda name, _: ok(name, "fine"))
    for blocked in (file, tmp_path):
        monkeypatch.setattr(os, "access", lambda path, _, bad=blocked: path != bad)
        found = [each async for each in checks.check_configured_store(settings)]
        assert [each.state for each in found] == ["ok", "fail"]
        assert found[-1].found == f"{blocked} can't be written to"
    file.unlink()  # the folder still is what it was
    found = [each async for each in checks.check_configured_store(settings)]
    assert [each.state for each in found] == ["ok", "fail"]


async def test_a_file_that_requests_cannot_use_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process writes to it, without tables, or if it is no database."""
    file = tmp_path / "history.db"
    settings = Settings.model_validate({"store": {"url": f"sqlite:///{file}"}})
    monkeypatch.setattr(checks, "check_disk", lambda name, _: ok(name, "fine"))
    monkeypatch.setattr(checks.check_lock, "__defaults__", (0.01,))

    async def found() -> Finding:
        return [each async for each in checks.check_configured_store(settings)][-1]

    await upgrade(f"sqlite:///{file}")
    assert (await found()).state == "ok"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "locked" in (await found()).found
    for content, advice in ((b"", "run ctxb db upgrade"), (b"no database" * 99, "backup")):
        file.write_bytes(content)
        finding = await found()
        assert finding.state == "fail"
        assert advice in finding.advice


async def test_what_a_check_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had found before stays, and the other checks run."""

    async def breaks(_settings: Settings) -> AsyncIterator[Finding]:
        yield ok("one", "fine")
        raise BusError("redis://me:secret@host:1 is away")

    async def works(_settings: Settings) -> AsyncIterator[Finding]:
        yield warn("two", "odd", "look")

    monkeypatch.setattr(doctor, "CHECKS", {"bus": breaks, "other": works})
    found = await doctor.run_checks(Settings())

    assert states(found) == {"one": "ok", "bus": "fail", "two": "warn"}
    assert "secret" not in repr(found)


def test_findings_are_shown_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing in them steers a terminal, and the states are counted."""
    findings = [ok("a", "fine"), fail("b", "bad \x1b[2J", "mend it")]
    print_findings([without_secrets(finding) for finding in findings])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "→ mend it" in shown
    assert shown.splitlines()[-1] == "1 ok, 0 warn, 1 fail"


def test_an_installation_as_it_comes_has_nothing_that_fails(ctxb: Ctxb) -> None:
    """But the report names what production needs: a bus and a store."""
    looked = ctxb("doctor", "--json")
    assert looked.exit_code == Exit.OK
    found = json.loads(looked.stdout)
    warned = {each["what"] for each in found if each["state"] == "warn"}
    assert warned == {"bus", "store"}
    assert {"tokenizer", "strategy", "prompts", "tools", "summaries", "http"} <= {
        each["what"] for each in found
    }


def test_what_fails_is_reported_by_the_exit_code(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bus that isn't there, a folder that can't be written, a server of tools that is none."""
    monkeypatch.setenv("CTXB_BUS__URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///nowhere/ctxb.db")
    monkeypatch.setenv("CTXB_WORKER__HEARTBEAT_FILE", "nowhere/beat")
    monkeypatch.setenv("CTXB_TOOLS__MCP", '[{"name": "git", "command": "/no/such/command"}]')
    monkeypatch.setenv("CTXB_HTTP__PORT", "8766")

    looked = ctxb("doctor", "--json")

    assert looked.exit_code == Exit.FAILED
    found = {each["what"]: each for each in json.loads(looked.stdout)}
    failed = {what for what, each in found.items() if each["state"] == "fail"}
    assert failed == {"bus", "store", "tools of git", "heartbeat"}
    assert found["http"]["state"] == "warn"
    assert all(found[what]["advice"] for what in failed)


def test_an_extra_that_is_missing_is_the_remedy(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting may be right."""
    hide_package(monkeypatch, "onnxruntime")
    monkeypatch.setenv("CTXB_RECALL__SEMANTIC", "true")
    found = {each["what"]: each for each in json.loads(ctxb("doctor", "--json").stdout)}

    assert found["vectors"]["state"] == "fail"
    assert found["vectors"]["advice"] == "install the extra semantic, or change the setting"


def test_settings_that_cannot_be_read_end_it(ctxb: Ctxb) -> None:
    """With the exit code that they have everywhere."""
    Path("config.yml").write_text("bus: {ulr: x}\n")
    assert ctxb("doctor").exit_code == Exit.CONFIGURATION


def test_plugins_that_are_broken_fail(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named with its error, and the other checks run."""
    Path("broken_tools.py").write_text("raise RuntimeError('boom')")
    monkeypatch.syspath_prepend(".")
    monkeypatch.setenv("CTXB_TOOLS__MODULES", '["broken_tools"]')
    points = [EntryPoint("mine", "broken_tools:Mine", plugins.STRATEGY_GROUP)]
    monkeypatch.setattr(plugins, "entry_points", lambda **_: points)
    monkeypatch.setenv("CTXB_BUDGET__MAX_TOKENS", "5")

    looked = ctxb("doctor", "--json")

    assert looked.exit_code == Exit.FAILED
    failed = {each["found"] for each in json.loads(looked.stdout) if each["state"] == "fail"}
    budget = next(found for found in failed if found.startswith("CTXB_BUDGET__MAX_TOKENS  budget."))
    assert failed == {
        budget,
        "mine = broken_tools:Mine, of unknown: RuntimeError: boom",
        "module 'broken_tools': cannot be imported: RuntimeError: boom",
    }


@pytest.mark.parametrize(("guard", "state"), [("gutter", "ok"), ("off", "warn")])
async def test_a_guard_that_is_off_is_reported(guard: Any, state: str) -> None:
    """It is for deployments in which all texts are their own."""
    (found,) = [finding async for finding in checks.check_guard(Settings(guard=guard))]

    assert (found.what, found.state) == ("guard", state)


async def test_role_marks_that_are_off_are_reported() -> None:
    """A server that reads special tokens in texts lets anybody open a role."""
    found = [finding async for finding in checks.check_guard(Settings(role_marks=False))]

    assert [(each.what, each.state) for each in found] == [("guard", "ok"), ("role_marks", "warn")]
