"""``ctxb history``: import, export, show, summarise, prune and erase conversations."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from formatters.model import Message, Row
from formatters.rows import read_row, read_rows
from formatters.times import format_stamp
from service.app import open_builder
from service.cli.erasure import erase_owner, print_erased
from service.cli.history_files import (
    as_lines,
    as_openai,
    call_arguments,
    read_history,
)
from service.cli.options import Conversation, Json, Owner, OwnerArgument, Yes
from service.cli.output import console, print_json, printable, table
from service.cli.request import read_bytes
from service.cli.start import require_persistent_store, start
from service.compaction.compactor import find_compactor
from service.compaction.job import find_job
from service.compaction.summarize import NewSummary, SkipReason
from service.config.settings import Settings
from service.connect import open_stores
from service.errors import ConfigError
from service.ports.stores import ArchivedRow, HistoryStore
from service.wire.request import BuildRequest

T = TypeVar("T")

#: Rows that are stored in one transaction.
BATCH: Final = 200

history = typer.Typer(
    no_args_is_help=True, help="Import, export, show, prune and erase conversations."
)

File = Annotated[
    Path,
    typer.Argument(help="JSONL rows or OpenAI messages; - reads stdin."),
]
ImportForm = Annotated[
    Literal["auto", "jsonl", "openai"],
    typer.Option("--format", help="auto detects it from the first line."),
]
ExportForm = Annotated[Literal["jsonl", "openai"], typer.Option("--format", help="What to write.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the file and store nothing.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Store the rows that can be read.")]
DryErase = Annotated[bool, typer.Option("--dry-run", help="Count, and erase nothing.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of rows.")]
Limit = Annotated[int, typer.Option(min=1, help="How many rows, the newest.")]


@history.command("import")
def import_(
    ctx: typer.Context,
    file: File,
    owner: Owner,
    conversation: Conversation = None,
    form: ImportForm = "auto",
    dry_run: DryRun = False,
    skip_bad: SkipBad = False,
) -> None:
    """Store the conversation of a file; rows that are stored already stay unchanged.

    ctxb history import chat.jsonl --owner ana
    ctxb history import messages.json --owner ana --conversation trip --dry-run

    A file with a row that can't be read, or that has a role other than human,
    ai and tool (user, assistant), is rejected as a whole, unless --skip-bad is
    given. Instructions, of the roles system and developer, are left out and
    counted. If there are several conversations, give each its own
    --conversation: missing ids are derived from position and content.
    """
    settings = start(ctx.obj)
    found = read_history(
        read_bytes(file),
        None if form == "auto" else form,
        owner_key=owner,
        conversation_id=conversation,
    )
    if not skip_bad:
        found.check(str(file))
    for problem in found.problems:
        typer.echo(f"skipped: {printable(problem)}", err=True)
    found.report_instructions()
    if dry_run:
        typer.echo(f"{len(found.rows)} rows can be stored; nothing was")
        return
    new = _run_on_history(settings, lambda store: store_rows(store, owner, found.rows))
    typer.echo(f"{new} rows stored, {len(found.rows) - new} were there already")


@history.command()
def export(
    ctx: typer.Context,
    owner: Owner,
    conversation: Conversation = None,
    form: ExportForm = "jsonl",
) -> None:
    """Print a history, oldest first.

    ctxb history export --owner ana > ana.jsonl
    ctxb history export --owner ana --format openai > messages.json

    The format openai is for other programs, not a backup: it drops ids and
    times.
    """
    settings = start(ctx.obj)
    rows = _run_on_history(settings, lambda store: read_newest(store, owner, conversation))
    if form == "openai":
        print_json(as_openai(rows))
        return
    for line in as_lines(rows):
        typer.echo(line)


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
    settings = start(ctx.obj)
    rows = _run_on_history(settings, lambda store: read_newest(store, owner, conversation, limit))
    if as_json:
        print_json(rows)
    else:
        print_history(rows)


@history.command()
def compact(ctx: typer.Context, owner: OwnerArgument, conversation: Conversation = None) -> None:
    """Summarise a history, except for its newest turns.

    ctxb history compact ana

    The summary is stored next to the history, which stays whole, and is shown
    under the strategy summarization.
    """
    settings = require_persistent_store(start(ctx.obj))
    typer.echo(describe_summary(asyncio.run(compact_history(settings, owner, conversation))))


@history.command()
def prune(ctx: typer.Context, owner: OwnerArgument, ids: Ids) -> None:
    """Leave rows out of all contexts from now on; nothing is deleted.

    ctxb history prune ana msg_1a01 msg_1a02

    `ctxb history show --json` prints the ids. `ctxb history restore` undoes it.
    """
    changed = _run_on_history(start(ctx.obj), lambda store: store.prune(owner, ids))
    _print_changed(changed, ids, "pruned")


@history.command()
def restore(ctx: typer.Context, owner: OwnerArgument, ids: Ids) -> None:
    """Let pruned rows into contexts again, at their old positions.

    ctxb history restore ana msg_1a01
    """
    changed = _run_on_history(start(ctx.obj), lambda store: store.restore(owner, ids))
    _print_changed(changed, ids, "restored")


@history.command()
def rm(
    ctx: typer.Context,
    *,
    owner: OwnerArgument,
    dry_run: DryErase = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase an owner for good: everything in store and bus, the profile included.

    ctxb history rm ana --dry-run
    ctxb history rm ana --yes

    Requests in work while this runs may still be stored afterwards: run it
    again. An owner is always erased as a whole; to hide some rows, see `ctxb
    history prune`. docs/privacy.md says what remains, and when that expires.
    """
    settings = start(ctx.obj)
    if not (dry_run or yes):
        question = f"Erase everything about {printable(owner)} for good?"
        typer.confirm(question, abort=True, err=True)
    erased = asyncio.run(erase_owner(settings, owner, dry_run=dry_run))
    if as_json:
        print_json(asdict(erased))
    else:
        print_erased(erased)


@history.command()
def archive(
    ctx: typer.Context, owner: OwnerArgument, limit: Limit = 20, as_json: Json = False
) -> None:
    """Print the rows that were last left out of an owner's contexts, and why.

    ctxb history archive ana

    Workers fill the archive if events.archive is true.
    """
    rows = _run_on_history(start(ctx.obj), lambda store: store.archived(owner, limit))
    if as_json:
        print_json([archived_dict(row) for row in rows])
    else:
        print_archive(rows)


@history.command()
def stats(ctx: typer.Context, owner: OwnerArgument, as_json: Json = False) -> None:
    """Count an owner's rows: those that builds may read, and those with a flag.

    ctxb history stats ana
    """
    counts = asdict(_run_on_history(start(ctx.obj), lambda store: store.stats(owner)))
    if as_json:
        print_json(counts)
        return
    rows = table("What", "Number", numbers=["Number"])
    for name, number in counts.items():
        rows.add_row(name, f"{number:,}")
    console().print(rows)


# --- the store -------------------------------------------------------------------------------


def _run_on_history(settings: Settings, action: Callable[[HistoryStore], Awaitable[T]]) -> T:
    """Run an action on the configured store's history."""
    require_persistent_store(settings)

    async def run() -> T:
        async with open_stores(settings) as stores:
            return await action(stores.history)

    return asyncio.run(run())


async def store_rows(store: HistoryStore, owner_key: str, rows: Sequence[Row]) -> int:
    """Store rows, with a progress bar if stderr is a terminal; returns how many were new."""
    errors = Console(stderr=True)
    new = 0
    with Progress(console=errors, disable=not errors.is_terminal, transient=True) as progress:
        bar = progress.add_task("storing", total=len(rows))
        for first in range(0, len(rows), BATCH):
            batch = rows[first : first + BATCH]
            new += await store.append(owner_key, batch)
            progress.advance(bar, len(batch))
    return new


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
        job = find_job(await builder.built(request), force=True)
        return await compactor.make(job) if job else SkipReason.NOT_NEEDED


def describe_summary(made: NewSummary | SkipReason) -> str:
    """Return a sentence about a new summary, or why there is none."""
    if isinstance(made, NewSummary):
        covered = len(made.summary.message_ids)
        return (
            f"{covered} rows have a summary of {made.summary.tokens} tokens, in place of "
            f"{made.replaced}; {made.kept} have none"
        )
    return {
        SkipReason.NOT_NEEDED: "nothing to summarise: too few rows are without a summary",
        SkipReason.BUSY: "another process is summarising this owner's history",
        SkipReason.OVERTAKEN: "the history has changed meanwhile; try again",
    }[made]


# --- output ----------------------------------------------------------------------------------


def print_history(rows: Sequence[Row]) -> None:
    """Print rows in the order given."""
    output = table("Time (UTC)", "Role", "Text")
    output.columns[0].no_wrap = True
    for message in read_rows(rows):
        time = format_stamp(message.timestamp).strip("[]")
        output.add_row(time, message.role.value, _message_text(message))
    console().print(output)


def print_archive(rows: Sequence[ArchivedRow]) -> None:
    """Print archived rows in the order given."""
    output = table("Left out (UTC)", "Reason", "Id", "Role", "Text")
    output.columns[0].no_wrap = True
    for archived in rows:
        message = read_row(archived.row)
        output.add_row(
            format_stamp(archived.at).strip("[]"),
            archived.reason,
            printable(message.id),
            message.role.value,
            _message_text(message),
        )
    console().print(output)


def archived_dict(row: ArchivedRow) -> dict[str, Any]:
    """Return an archived row as JSON."""
    return {**asdict(row), "at": row.at.isoformat()}


def _message_text(message: Message) -> Text:
    calls = [f"calls {call.name}({call_arguments(call)})" for call in message.tool_calls]
    return Text(printable("\n".join(filter(None, [message.content, *calls]))))


def _print_changed(changed: int, ids: Sequence[str], what: str) -> None:
    others = len(set(ids)) - changed
    typer.echo(f"{changed} rows {what}, {others} were {what} already or do not exist")
