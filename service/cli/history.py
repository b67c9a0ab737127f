"""``ctxb history``: bring conversations into the store, take them out, look at them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli.options import Conversation, Json, NamedOwner, Owner
from service.cli.request import read_bytes

history = typer.Typer(
    no_args_is_help=True, help="Import, export, show, prune and erase conversations."
)

File = Annotated[
    Path,
    typer.Argument(help="JSONL rows or OpenAI messages; - reads stdin."),
]
ImportForm = Annotated[
    Literal["auto", "jsonl", "openai"],
    typer.Option("--format", help="auto looks at the first line."),
]
ExportForm = Annotated[Literal["jsonl", "openai"], typer.Option("--format", help="What to write.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the file and store nothing.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Store what can be read.")]
DryErase = Annotated[bool, typer.Option("--dry-run", help="Count, and erase nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of rows.")]
Limit = Annotated[int, typer.Option(min=1, help="The newest so many rows.")]


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
    """Store the conversation of a file; what is stored already is left as it is.

    ctxb history import chat.jsonl --owner ana
    ctxb history import messages.json --owner ana --conversation trip --dry-run

    A file in which something can't be read is refused as a whole, unless
    --skip-bad is given; so is one with roles other than human, ai and tool
    (user, assistant). Instructions, of the roles system and developer, are
    left out, and it is said how many. Give each of several conversations its own
    --conversation: ids that are missing are made from place and content.
    """
    from service.cli.history_files import read_history
    from service.cli.history_store import store_rows
    from service.cli.start import kept_store, start
    from service.cli.tables import printable

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
    found.tell_left_out()
    if dry_run:
        typer.echo(f"{len(found.rows)} rows can be stored; nothing was")
        return
    new = asyncio.run(store_rows(kept_store(settings), owner, found.rows))
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

    The form openai is for other programs and no backup: it drops ids and
    times.
    """
    from service.cli.history_store import read_stored_rows
    from service.cli.history_text import as_lines, as_openai
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    rows = asyncio.run(read_stored_rows(settings, owner, conversation))
    if form == "openai":
        typer.echo(json.dumps(as_openai(rows), indent=2, ensure_ascii=False))
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
    from service.cli.history_store import read_stored_rows
    from service.cli.history_text import print_history
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    rows = asyncio.run(read_stored_rows(settings, owner, conversation, limit))
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    print_history(rows)


@history.command()
def compact(ctx: typer.Context, owner: NamedOwner, conversation: Conversation = None) -> None:
    """Put a history in few words, but for its newest turns.

    ctxb history compact ana

    The summary stands beside the history, which stays whole, and is shown
    under the strategy summarization.
    """
    from service.cli.compaction import compact_history, told
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    typer.echo(told(asyncio.run(compact_history(settings, owner, conversation))))


@history.command()
def prune(ctx: typer.Context, owner: NamedOwner, ids: Ids) -> None:
    """Leave rows out of all contexts from now on; nothing is deleted.

    ctxb history prune ana msg_1a01 msg_1a02

    `ctxb history show --json` has the ids. `ctxb history restore` takes it
    back.
    """
    from service.cli.history_store import ask_history
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    changed = asyncio.run(ask_history(settings, lambda history: history.prune(owner, ids)))
    _tell_changed(changed, ids, "pruned")


@history.command()
def restore(ctx: typer.Context, owner: NamedOwner, ids: Ids) -> None:
    """Let pruned rows into contexts again, in their old places.

    ctxb history restore ana msg_1a01
    """
    from service.cli.history_store import ask_history
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    changed = asyncio.run(ask_history(settings, lambda history: history.restore(owner, ids)))
    _tell_changed(changed, ids, "restored")


@history.command()
def rm(
    ctx: typer.Context,
    *,
    owner: NamedOwner,
    dry_run: DryErase = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase an owner for good: all that store and bus have of them, the profile too.

    ctxb history rm ana --dry-run
    ctxb history rm ana --yes

    What of the owner is in work while this runs may be stored behind it: run
    it again. An owner is erased whole; to hide some rows, see `ctxb history
    prune`. docs/privacy.md says what is left, and when that ends by itself.
    """
    from service.cli.erasure import erase_owner, erased_dict, print_erased
    from service.cli.start import start
    from service.cli.tables import printable

    settings = start(ctx.obj)
    if not (dry_run or yes):
        typer.confirm(f"Erase all there is of {printable(owner)} for good?", abort=True, err=True)
    erased = asyncio.run(erase_owner(settings, owner, dry_run=dry_run))
    if as_json:
        typer.echo(json.dumps(erased_dict(erased), indent=2))
        return
    print_erased(erased)


@history.command()
def archive(
    ctx: typer.Context, owner: NamedOwner, limit: Limit = 20, as_json: Json = False
) -> None:
    """Print what last fell out of an owner's context, and why.

    ctxb history archive ana

    Workers fill the archive where events.archive is true.
    """
    from service.cli.history_store import ask_history
    from service.cli.history_text import archive_dict, print_archive
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    copies = asyncio.run(ask_history(settings, lambda history: history.archived(owner, limit)))
    if as_json:
        told = [archive_dict(copy) for copy in copies]
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    print_archive(copies)


@history.command()
def stats(ctx: typer.Context, owner: NamedOwner, as_json: Json = False) -> None:
    """Count an owner's rows: those that builds may read, and the marked ones.

    ctxb history stats ana
    """
    from service.cli.history_store import ask_history
    from service.cli.start import kept_store, start
    from service.cli.tables import console, table

    settings = kept_store(start(ctx.obj))
    counted = asdict(asyncio.run(ask_history(settings, lambda history: history.stats(owner))))
    if as_json:
        typer.echo(json.dumps(counted, indent=2))
        return
    shown = table("What", "How many", numbers=["How many"])
    for name, number in counted.items():
        shown.add_row(name, f"{number:,}")
    console().print(shown)


def _tell_changed(changed: int, ids: Sequence[str], what: str) -> None:
    others = len(set(ids)) - changed
    typer.echo(f"{changed} rows {what}, {others} were so before or are not there")
