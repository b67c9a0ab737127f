"""``ctxb stats``: how much waits, who works on it, and how large all of it is."""

from typing import Annotated

import typer

from service.cli.options import Json

Watch = Annotated[
    float | None,
    typer.Option(min=0.2, metavar="SECONDS", help="Look again every so often, until Ctrl-C."),
]


def stats(ctx: typer.Context, watch: Watch = None, as_json: Json = False) -> None:
    """Show what waits on the bus, which workers there are, dead letters, and the store's size.

    ctxb stats
    ctxb stats --watch 2
    ctxb stats --watch 10 --json >> stats.jsonl

    Waiting is what no worker has read yet, in work what one has and has not
    answered. With --watch there is a rate as well, with --json each look is a
    line of its own, and while bus or store are away it says why and goes on.
    Over Postgres, numbers of rows are estimates.
    """
    from service.cli.ending import until_told
    from service.cli.overview import look, show, watching
    from service.cli.start import has_kept_store, shared_bus, start

    settings = start(ctx.obj)
    if not has_kept_store(settings):
        shared_bus(settings)
    if watch is None:
        show(until_told(look(settings)), as_json=as_json)
        return
    until_told(watching(settings, watch, as_json=as_json), endless=True)
