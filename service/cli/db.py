"""``ctxb db``: create, upgrade and check the schema of the store."""

import asyncio

import typer

from service.cli.output import counted
from service.cli.start import require_persistent_store, start
from service.connect import check_store, reindex_store, store_revision, upgrade_store

db = typer.Typer(no_args_is_help=True)


@db.command()
def upgrade(ctx: typer.Context) -> None:
    """Upgrade the store to the newest schema; a SQLite file is created if needed.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db upgrade

    Upgrades that run at the same time wait for each other.

    The exit code is 1 if the tables don't match the schema's revision, and 5 if
    the store can't be opened. A search index of another version is a warning.
    """
    before, after, left = asyncio.run(upgrade_store(require_persistent_store(start(ctx.obj))))
    typer.echo(f"{after} (was {before or 'empty'})" if before != after else f"{after} (no change)")
    if left:
        typer.echo(f"warning: {left} once all workers have this version", err=True)


@db.command()
def current(ctx: typer.Context) -> None:
    """Print the revision of the store's schema, or ``none``.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db current
    """
    settings = require_persistent_store(start(ctx.obj))
    typer.echo(asyncio.run(store_revision(settings)) or "none")


@db.command()
def check(ctx: typer.Context) -> None:
    """Check that the store has the newest schema and all of its tables, undamaged.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db check

    If the schema or the search index differs, the command prints the difference
    and exits with 1.
    """
    settings = require_persistent_store(start(ctx.obj))
    typer.echo(f"ok: {asyncio.run(check_store(settings, pages=True))}")


@db.command()
def reindex(ctx: typer.Context) -> None:
    """Recompute the search terms of stored rows with the rules of this version.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db reindex

    Run the command if `ctxb db check` asks for it, after all workers have the new
    version. Workers can keep running. If the command is interrupted, run it
    again: it continues where it stopped.
    """
    changed = asyncio.run(reindex_store(require_persistent_store(start(ctx.obj))))
    typer.echo(f"ok: {counted(changed, 'row')} indexed again")
