"""``ctxb bus``: the streams that requests are spread over."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from service.cli.options import Json
from service.cli.output import console, print_json, printable, table
from service.cli.start import require_shared_bus, start
from service.config.settings import Settings
from service.connect import open_bus
from service.ports.bus import RequestStream

bus = typer.Typer(no_args_is_help=True, help="Show and set how requests are spread.")

Count = Annotated[
    int | None,
    typer.Argument(
        min=1, max=64, metavar="[N]", help="The new number of streams.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The number of streams in use, and all streams that exist."""

    shards: int
    streams: Sequence[RequestStream]


@bus.command()
def shards(ctx: typer.Context, count: Count = None, as_json: Json = False) -> None:
    """Show over how many streams requests are spread, by owner, or set it.

    ctxb bus shards
    ctxb bus shards 4

    Workers and clients notice within seconds. Requests in streams that are
    no longer in use are still read and answered; producers that write to the
    streams themselves have to look the number up again.
    """
    layout = asyncio.run(set_layout(require_shared_bus(start(ctx.obj)), count))
    if as_json:
        print_json(asdict(layout))
    else:
        print_layout(layout)


async def set_layout(settings: Settings, count: int | None) -> Layout:
    """Set the number of streams, unless ``count`` is None, and return the layout."""
    async with open_bus(settings) as connected:
        shards = connected.bus.request_shards
        if count is not None:
            await shards.set_count(count)
        return Layout(shards=await shards.count(), streams=await shards.streams())


def print_layout(layout: Layout) -> None:
    """Print a table of the streams, and how many of them are no longer in use."""
    rows = table("Stream", "Entries", "In work", numbers=["Entries", "In work"])
    for stream in layout.streams:
        rows.add_row(printable(stream.name), f"{stream.entries:,}", f"{stream.pending:,}")
    console().print(rows)
    typer.echo(f"{layout.shards} {'shard' if layout.shards == 1 else 'shards'}")
    former = len(layout.streams) - layout.shards
    if former > 0:
        typer.echo(f"{former} streams of an earlier layout have entries; workers still read them")
