"""``ctxb history``: import, export, show, summarise, prune and erase conversations."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from formatters.model import Message, Row
from formatters.rows import read_row, read_rows
from formatters.times import format_stamp
from service.app import open_builder
from service.cli.history_files import Form, as_openai, call_arguments, read_history
from service.cli.options import Conversation, Json, Owner, OwnerArgument, OwnerCommand, Yes
from service.cli.output import console, counted, note_if_none, print_json, printable, table
from service.cli.request import read_bytes
from service.cli.start import (
    has_persistent_store,
    require_existing_store,
    require_persistent_store,
    start,
)
from service.compaction.compactor import find_compactor
from service.compaction.job import find_job
from service.compaction.summarize import NewSummary, SkipReason
from service.config.settings import Settings
from service.connect import check_ready, find_bus, has_shared_bus, open_bus, open_stores
from service.errors import ConfigError
from service.ports.bus import Forgotten
from service.ports.stores import HistoryStore
from service.wire.history_row import HistoryRow, find_conflicts
from service.wire.request import BuildRequest

T = TypeVar("T")

#: Rows that are stored in one transaction; more if many precede the first that has a time.
BATCH: Final = 200

#: The counts of an erasure, by their names in JSON.
_IN_STORE: Final = {
    "rows": "rows",
    "fallen": "flags of rows that fell out",
    "archived": "archived copies",
    "summaries": "summaries",
    "profiles": "profile",
}
_ON_BUS: Final = {
    "results": "stored answers",
    "reports": "build reports",
    "dead_letters": "dead letters",
}

history = typer.Typer(no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(help="A file with JSONL rows or OpenAI messages; - is stdin.")
]
ImportForm = Annotated[Form, typer.Option("--format", help="auto detects it from the first line.")]
ImportConversation = Annotated[
    str | None,
    typer.Option("--conversation", metavar="ID", help="The conversation of rows that name none."),
]
ExportForm = Annotated[
    Literal["jsonl", "openai"], typer.Option("--format", help="The format to print.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the file and store nothing.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Store the rows that can be read.")]
DryErase = Annotated[bool, typer.Option("--dry-run", help="Count, and erase nothing.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of rows.")]
Limit = Annotated[int, typer.Option(min=1, help="Number of rows, newest ones.")]


@history.command("import")
def import_(
    ctx: typer.Context,
    file: File,
    owner: Owner,
    conversation: ImportConversation = None,
    form: ImportForm = "auto",
    dry_run: DryRun = False,
    skip_bad: SkipBad = False,
) -> None:
    """Store the messages of a file; rows that are already stored don't change.

    ctxb history import chat.jsonl --owner ana
    ctxb history import messages.json --owner ana --conversation trip --dry-run

    Roles are human (or user), ai (or assistant) and tool. Messages with the role
    system or developer are left out and counted. If a row can't be read or has
    another role, nothing is stored; --skip-bad stores the other rows. Missing
    ids are derived from position and content, so give each conversation its own
    --conversation.
    """
    settings = start(ctx.obj)
    data = read_bytes(file)
    found = read_history(data, form, owner_key=owner, conversation_id=conversation)
    found.report(str(file), skip_bad=skip_bad)
    if dry_run:
        typer.echo(f"{counted(len(found.rows), 'row')} can be stored; nothing was")
        return
    new, conflicts = _run_on_history(
        settings, lambda store: store_rows(store, owner, found.rows), create=True
    )
    typer.echo(f"{counted(new, 'row')} stored, {len(found.rows) - new} there already")
    if conflicts:
        ids = f"{counted(len(conflicts), 'id')}, such as {printable(conflicts[0])}"
        typer.echo(f"warning: stored before with another content, which stays: {ids}", err=True)


@history.command()
def export(
    ctx: typer.Context, owner: Owner, conversation: Conversation = None, form: ExportForm = "jsonl"
) -> None:
    """Print the rows of an owner, oldest first, without pruned ones.

    ctxb history export --owner ana > ana.jsonl
    ctxb history export --owner ana --format openai > messages.json

    The format openai has no ids and times, so use it for other programs only,
    not for backups.
    """
    rows = _run_on_history(start(ctx.obj), lambda store: read_newest(store, owner, conversation))
    note_if_none(rows)
    if form == "openai":
        print_json(as_openai(rows))
        return
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=False))


@history.command()
def show(
    ctx: typer.Context,
    owner: Owner,
    conversation: Conversation = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Print the newest rows of a history, the newest last.

    ctxb history show --owner ana --limit 5
    """
    rows = _run_on_history(
        start(ctx.obj), lambda store: read_newest(store, owner, conversation, limit)
    )
    note_if_none(rows)
    if as_json:
        print_json(rows)
        return
    cells = (
        (format_stamp(message.timestamp).strip("[]"), message.role.value, _message_text(message))
        for message in read_rows(rows)
    )
    columns = ("Time (UTC)", "Role", "Text")
    console().print(table(*columns, rows=cells, unbroken=columns[:1]))


@history.command(cls=OwnerCommand)
def compact(ctx: typer.Context, owner: OwnerArgument, conversation: Conversation = None) -> None:
    """Summarise an owner's history, except its newest turns.

    ctxb history compact ana

    The history stays whole. The strategy summarization shows the summary in
    place of the rows that it covers.
    """
    settings = require_existing_store(start(ctx.obj))
    typer.echo(describe_summary(asyncio.run(compact_history(settings, owner, conversation))))


@history.command(cls=OwnerCommand)
def prune(ctx: typer.Context, owner: OwnerArgument, ids: Ids) -> None:
    """Hide rows from all later contexts; nothing is deleted.

    ctxb history prune ana msg_1a01 msg_1a02

    `ctxb history show --json` prints the ids. `ctxb history restore` undoes it.
    """
    changed = _run_on_history(start(ctx.obj), lambda store: store.prune(owner, ids))
    _print_changed(changed, ids, "pruned")


@history.command(cls=OwnerCommand)
def restore(ctx: typer.Context, owner: OwnerArgument, ids: Ids) -> None:
    """Show pruned rows in contexts again, at their old positions.

    ctxb history restore ana msg_1a01
    """
    changed = _run_on_history(start(ctx.obj), lambda store: store.restore(owner, ids))
    _print_changed(changed, ids, "restored")


@history.command(cls=OwnerCommand)
def rm(
    ctx: typer.Context,
    *,
    owner: OwnerArgument,
    dry_run: DryErase = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase an owner's data from store and bus, except unread replies and waiting entries.

    ctxb history rm ana --dry-run
    ctxb history rm ana --yes

    Requests that are being processed can still store data: run the command again
    after their deadlines. Replies in lists and streams stay until they expire:
    docs/privacy.md says how to delete them, and what else remains. To hide single
    rows, use `ctxb history prune`.
    """
    settings = find_bus(start(ctx.obj))
    if not (dry_run or yes):
        question = f"Erase everything about {printable(owner)} for good?"
        typer.confirm(question, abort=True, err=True)
    store, bus = asyncio.run(erase_owner(settings, owner, dry_run=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, "store": store, "bus": bus})
    else:
        print_erased("Found" if dry_run else "Erased", store, bus)


@history.command(cls=OwnerCommand)
def archive(
    ctx: typer.Context, owner: OwnerArgument, limit: Limit = 20, as_json: Json = False
) -> None:
    """Print copies of rows that fell out of an owner's contexts, with the reason.

    ctxb history archive ana

    Workers fill the archive if events.archive is true.
    """
    rows = _run_on_history(start(ctx.obj), lambda store: store.archived(owner, limit))
    note_if_none(rows)
    if as_json:
        print_json(rows)
        return
    columns = ("Left out (UTC)", "Reason", "Id", "Role", "Text")
    cells = []
    for archived in rows:
        message, time = read_row(archived.row), format_stamp(archived.at).strip("[]")
        text = _message_text(message)
        cells.append((time, archived.reason, message.id, message.role.value, text))
    console().print(table(*columns, rows=cells, unbroken=columns[:1]))


@history.command(cls=OwnerCommand)
def stats(ctx: typer.Context, owner: OwnerArgument, as_json: Json = False) -> None:
    """Count an owner's rows, tokens, flags, archived copies and summaries.

    ctxb history stats ana

    "rows" can be read by builds. "pruned" rows are hidden by hand. "fallen" rows
    are a part of "rows": each fell out of a context at least once. Tokens are
    counted as if [SHARED_MEMORY] printed no tool results: a result counts as 0.
    """
    counts = _run_on_history(start(ctx.obj), lambda store: store.stats(owner))
    if as_json:
        print_json(counts)
    else:
        rows = asdict(counts).items()
        console().print(table("What", "Number", rows=rows, numbers=["Number"]))


def _message_text(message: Message) -> str:
    calls = [f"calls {call.name}({call_arguments(call)})" for call in message.tool_calls]
    return "\n".join(filter(None, [message.content, *calls]))


def _print_changed(changed: int, ids: Sequence[str], what: str) -> None:
    others = len(set(ids)) - changed
    typer.echo(f"{counted(changed, 'row')} {what}, {others} {what} already or unknown")


# --- the store -------------------------------------------------------------------------------


def _run_on_history(
    settings: Settings, action: Callable[[HistoryStore], Awaitable[T]], *, create: bool = False
) -> T:
    """Run an action on the configured store's history; a file is created only if wanted."""
    require = require_persistent_store if create else require_existing_store
    require(settings)

    async def run() -> T:
        async with open_stores(settings) as stores:
            return await action(stores.history)

    return asyncio.run(run())


async def store_rows(
    store: HistoryStore, owner_key: str, rows: Sequence[Row]
) -> tuple[int, Sequence[str]]:
    """Store rows, with a progress bar if stderr is a terminal.

    Returns how many were new, and the ids of those that differ from what was stored before.
    """
    errors = Console(stderr=True)
    hidden = not errors.is_terminal
    progress = track(divide(rows), "storing", console=errors, disable=hidden, transient=True)
    total, conflicts = 0, dict[str, None]()
    for batch in progress:
        new = await store.append(owner_key, batch)
        total += new
        if new < len(batch):
            stored = await store.rows(owner_key, [str(row["id"]) for row in batch])
            given = [  # roles of files may have blanks around them
                HistoryRow.model_validate({**row, "role": str(row["role"]).strip()})
                for row in batch
            ]
            conflicts |= dict.fromkeys(find_conflicts(given, stored))
    return total, list(conflicts)


def divide(rows: Sequence[Row]) -> Sequence[Sequence[Row]]:
    """Divide rows so that stores, which sort by time, keep the order of those without a time.

    Stores take the time of the row before such a row, so a later batch begins with the last row
    that has one, once more. The first batch has all rows up to the first time.
    """
    timed = (index for index, row in enumerate(rows) if row.get("timestamp") is not None)
    end = max(next(timed, 0) + 1, BATCH)
    batches: list[Sequence[Row]] = [rows[:end]]
    for begin in range(end, len(rows), BATCH):
        newest = [row for row in batches[-1] if row.get("timestamp") is not None][-1:]
        batches.append([*newest, *rows[begin : begin + BATCH]])
    return batches


async def read_newest(
    store: HistoryStore, owner_key: str, conversation_id: str | None, limit: int | None = None
) -> list[Row]:
    """Return the newest ``limit`` rows, or all, oldest first."""
    page = await store.recent(owner_key, conversation_id, max_rows=limit)
    return list(page.rows[::-1])


# --- summaries -------------------------------------------------------------------------------


async def compact_history(
    settings: Settings, owner_key: str, conversation_id: str | None
) -> NewSummary | SkipReason:
    """Summarise the rows without a summary, as a build with default options would need it.

    Raises:
        ConfigError: Summaries are switched off.
        ContextBuilderError: The context, or the summary, can't be built.
    """
    request = BuildRequest.model_validate(
        {
            "owner_key": owner_key,
            "conversation_id": conversation_id,
            "content": {"current_input": "-", "context": {"strategy": "summarization"}},
        }
    )
    async with open_builder(settings) as builder:
        compactor = find_compactor(builder.after_answer)
        if compactor is None:
            raise ConfigError("summaries.enabled: no summaries are made")
        job = find_job(await builder.build_or_raise(request), force=True)
        return await compactor.make(job) if job else SkipReason.NOT_NEEDED


def describe_summary(made: NewSummary | SkipReason) -> str:
    """Return a sentence about a new summary, or why there is none."""
    if isinstance(made, NewSummary):
        covered = len(made.summary.message_ids)
        return (
            f"summary of {counted(covered, 'row')} made: {counted(made.summary.tokens, 'token')}"
            f" in place of {made.replaced}; rows without one: {made.kept}"
        )
    return {
        SkipReason.NOT_NEEDED: "nothing to summarise: too few rows are without a summary",
        SkipReason.BUSY: "another process is summarising this owner's history",
        SkipReason.OVERTAKEN: "the history has changed meanwhile; try again",
    }[made]


# --- erasing ---------------------------------------------------------------------------------


async def erase_owner(
    settings: Settings, owner_key: str, *, dry_run: bool
) -> tuple[Mapping[str, int] | None, Forgotten | None]:
    """Erase an owner from a persistent store and a shared bus, or count with ``dry_run``.

    Returns what there was in store and bus, None for one that was skipped.

    Raises:
        BusError: The bus does not answer; then nothing is erased.
        ConfigError: Neither a persistent store nor a shared bus is configured.
        StoreError: The store does not answer. The bus may have been erased already.
    """
    persistent, shared = has_persistent_store(settings), has_shared_bus(settings)
    if not (persistent or shared):
        raise ConfigError(
            "neither a store nor a bus to erase from: store.url is memory://, and bus.url is not"
            " set; set CTXB_STORE__URL or CTXB_BUS__URL as the workers have them"
        )
    if persistent:
        await check_ready(settings)
    bus = store = None
    if shared:
        async with open_bus(settings) as connected:
            bus = await connected.bus.forget(owner_key, dry_run=dry_run)
    if persistent:
        async with open_stores(settings) as stores:
            held = await stores.history.stats(owner_key)
            rows, profile = held.rows + held.pruned, bool(await stores.profiles.get(owner_key))
            if not dry_run:
                rows = await stores.history.erase(owner_key)
                profile = await stores.profiles.erase(owner_key)
        counts = {"fallen": held.fallen, "archived": held.archived, "summaries": held.summaries}
        store = {"rows": rows, **counts, "profiles": int(profile)}
    return store, bus


def print_erased(heading: str, store: Mapping[str, int] | None, bus: Forgotten | None) -> None:
    """Print what was erased, and what was skipped or remains."""
    rows: list[tuple[str, int]] = []
    if store:
        rows += [(label, store[name]) for name, label in _IN_STORE.items()]
    if bus:
        rows += [(label, getattr(bus, name)) for name, label in _ON_BUS.items()]
    console().print(table("What", heading, rows=rows, numbers=[heading]))
    if store is None:
        typer.echo(
            "the store was skipped: it is in the memory of each worker, and ends with it"
            " (store.url is memory://)"
        )
    if bus is None:
        typer.echo("the bus was skipped: none is configured (bus.url)")
        return
    if bus.waiting:
        typer.echo(
            f"still on the streams: {counted(bus.waiting, 'entry')} of the owner, which may be"
            " stored when processed: run this again then"
        )
    if bus.unreadable:
        typer.echo(
            f"{counted(bus.unreadable, 'dead letter')} without a readable owner left: see"
            " `ctxb dead ls`"
        )
    typer.echo(
        "replies that nobody has read yet stay in their lists and streams until they expire:"
        " docs/privacy.md, Erasing an owner"
    )
