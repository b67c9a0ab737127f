"""``ctxb db``: the schema of the store."""

import asyncio

import typer

db = typer.Typer(no_args_is_help=True, help="Bring the store's schema up to date.")


@db.command()
def upgrade(ctx: typer.Context) -> None:
    """Bring the store to the newest schema, and create it where there is none.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db upgrade
    """
    from service.app import store_revision, upgrade_store
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))

    async def upgraded() -> tuple[str | None, str | None]:
        before = await store_revision(settings)
        await upgrade_store(settings)
        return before, await store_revision(settings)

    before, after = asyncio.run(upgraded())
    typer.echo(f"{after} (was {before or 'empty'})" if before != after else f"{after} (no change)")


@db.command()
def current(ctx: typer.Context) -> None:
    """Print the revision of the store's schema, or ``none``.

    CTXB_STORE__URL=sqlite:///ctxb.db ctxb db current
    """
    from service.app import store_revision
    from service.cli.start import kept_store, start

    settings = kept_store(start(ctx.obj))
    typer.echo(asyncio.run(store_revision(settings)) or "none")
