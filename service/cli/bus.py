"""``ctxb bus``: the streams of the bus, and how requests are spread over them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from service.cli.options import Json
from service.cli.output import console, counted, print_json, table
from service.cli.start import run_on_bus, start
from service.ports.bus import Bus, RequestStream

bus = typer.Typer(no_args_is_help=True)

Count = Annotated[
    int | None,
    typer.Argument(
        min=1, max=64, metavar="[N]", help="The new number of streams.", show_default=False
    ),
]


@bus.command()
def shards(ctx: typer.Context, count: Count = None, as_json: Json = False) -> None:
    """Show or set the number of request streams (shards).

    ctxb bus shards
    ctxb bus shards 4

    Workers and clients of this project notice a change within seconds. Programs
    that use XADD must read the number again. Workers still answer requests in
    streams that are no longer used.
    """

    async def set_and_read(bus: Bus) -> tuple[int, Sequence[RequestStream]]:
        if count is not None:
            await bus.request_shards.set_count(count)
        return await bus.request_shards.count(), await bus.request_shards.streams()

    used, streams = run_on_bus(start(ctx.obj), set_and_read)
    if as_json:
        print_json({"shards": used, "streams": streams})
        return
    numbers = ["Entries", "In work"]
    rows = ((stream.name, stream.entries, stream.pending) for stream in streams)
    console().print(table("Stream", *numbers, rows=rows, numbers=numbers))
    typer.echo(counted(used, "shard"))
    former = len(streams) - used
    if former > 0:
        kept = f"{counted(former, 'stream')} of an earlier layout with entries"
        typer.echo(f"{kept}; workers still read them")


@bus.command()
def renumber(ctx: typer.Context, as_json: Json = False) -> None:
    """Recreate streams that take no more entries, under the same names.

    ctxb bus renumber

    A stream takes no more entries after an entry with the greatest possible id,
    18446744073709551615-18446744073709551615. All entries stay, unread and
    pending ones too; only this entry gets a new id. The command loses nothing
    and can be repeated, but it blocks Redis while it copies a stream: 1 to 3 s
    for 100,000 pending entries.
    """
    renumbered = run_on_bus(start(ctx.obj), lambda bus: bus.renumber())
    if as_json:
        print_json({"renumbered": renumbered})
        return
    for name in renumbered:
        typer.echo(f"{name} takes entries again")
    if not renumbered:
        typer.echo("no stream has run out of ids")
