"""``ctxb bus``: how the bus is laid out."""

import asyncio
import json
from typing import Annotated

import typer

from service.cli.options import Json

bus = typer.Typer(no_args_is_help=True, help="Show and set how requests are spread.")

Count = Annotated[
    int | None,
    typer.Argument(min=1, max=64, metavar="[N]", help="Streams from now on.", show_default=False),
]


@bus.command()
def shards(ctx: typer.Context, count: Count = None, as_json: Json = False) -> None:
    """Show over how many streams requests are spread, by owner, or set it.

    ctxb bus shards
    ctxb bus shards 4

    Workers and clients notice within seconds. What waits in streams that are
    no longer in use is read and answered all the same; producers that write
    to the streams themselves have to look the number up again.
    """
    from service.cli.layout import as_document, print_layout, read_layout
    from service.cli.start import shared_bus, start

    layout = asyncio.run(read_layout(shared_bus(start(ctx.obj)), count))
    if as_json:
        typer.echo(json.dumps(as_document(layout), indent=2))
        return
    print_layout(layout)
