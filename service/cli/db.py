"""``ctxb db``: the schema of the store."""

import asyncio

import typer

db = typer.Typer(no_args_is_help=True, help="Look at the store's schema, and bring it up to date.")


@db.command()
def upgrade(ctx: typer.Context) -> None:
    """Bring the store to the newest schema; a file is created where there is none.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db upgrade

    Of several that start at the same time one upgrades, and the others wait for it.

    The exit code is 1 where its tables are not those of its revision, and 5
    where the store can't be opened.
    """
    from service.cli.start import kept_store, start
    from service.connect import check_store, store_revision, upgrade_store

    settings = kept_store(start(ctx.obj))

    async def upgraded() -> tuple[str | None, str]:
        before = await store_revision(settings)
        await upgrade_store(settings)
        return before, await check_store(settings)

    before, after = asyncio.run(upgraded())
    typer.echo(f"{after} (was {before or 'empty'})" if before != after else f"{after} (no change)")


@db.command()
def current(ctx: typer.Context) -> None:
    """Print the revision of the store's schema, or ``none``.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db current
    """
    from service.cli.start import kept_store, start
    from service.connect import store_revision

    settings = kept_store(start(ctx.obj))
    typer.echo(asyncio.run(store_revision(settings)) or "none")


@db.command()
def check(ctx: typer.Context) -> None:
    """Check that the store has the newest schema, and the tables that belong to it.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db check

    The exit code is 1 where it has not; what differs is said.
    """
    from service.cli.start import kept_store, start
    from service.connect import check_store

    settings = kept_store(start(ctx.obj))
    typer.echo(f"ok: {asyncio.run(check_store(settings))}")


@db.command()
def reindex(ctx: typer.Context) -> None:
    """Have stored rows found by the terms that this version makes of them.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db reindex

    Needed where `ctxb db check` says so. Workers of this version may serve meanwhile; one that was
    ended goes on where it was.
    """
    from service.cli.start import kept_store, start
    from service.connect import reindex_store

    changed = asyncio.run(reindex_store(kept_store(start(ctx.obj))))
    typer.echo(f"ok: {changed} rows had other terms")
