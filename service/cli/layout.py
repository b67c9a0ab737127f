"""The streams of requests, as people see them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer

from service.cli.tables import console, printable, table
from service.config.settings import Settings
from service.connect import open_bus
from service.ports.bus import RequestStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How many streams there are, and how full they and others are."""

    shards: int
    streams: Sequence[RequestStream]


async def read_layout(settings: Settings, count: int | None) -> Layout:
    """Set the number of streams, if one is given, and look what there is."""
    async with open_bus(settings) as connected:
        division = connected.bus.division
        if count is not None:
            await division.divide(count)
        return Layout(shards=await division.count(), streams=await division.streams())


def print_layout(layout: Layout) -> None:
    """Print a table, and what is to be known of streams that are no longer in use."""
    rows = table("Stream", "Entries", "In work", numbers=["Entries", "In work"])
    for stream in layout.streams:
        rows.add_row(printable(stream.name), f"{stream.entries:,}", f"{stream.pending:,}")
    console().print(rows)
    typer.echo(f"{layout.shards} {'shard' if layout.shards == 1 else 'shards'}")
    former = len(layout.streams) - layout.shards
    if former > 0:
        typer.echo(f"{former} more streams hold entries of before; workers go on reading them")


def as_document(layout: Layout) -> dict[str, object]:
    """Return the layout as JSON holds it."""
    return asdict(layout)
