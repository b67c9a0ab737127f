"""``ctxb replay``: build again what a worker built, and tell what has changed."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.exits import Exit, run_until_stopped
from service.cli.options import Json

BuildId = Annotated[str, typer.Argument(metavar="BUILD_ID", help="As in the response.")]
Request = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The request itself, where it brought contents along."),
]


def replay(
    ctx: typer.Context, build_id: BuildId, request: Request = None, as_json: Json = False
) -> None:
    """Build again what a worker built, from the same rows, and tell what has changed.

    ctxb replay bld_5d4b8ca19cb01f1f52f2390e46b46de4
    ctxb replay bld_5d4b8ca19cb01f1f52f2390e46b46de4 --request request.json

    Bus and store are those of the settings; nothing is written. The exit code
    is 0 where the same messages and tools come of it, 7 where others do, and
    8 where it can't be repeated.
    """
    from pydantic import TypeAdapter

    from service.audit.replay import Replay
    from service.cli.replays import print_replay, replayed
    from service.cli.request import read_request
    from service.cli.start import require_persistent_store, require_shared_bus, start

    settings = require_persistent_store(require_shared_bus(start(ctx.obj)))
    given = None if request is None else read_request(request)
    result = run_until_stopped(replayed(settings, build_id, given))
    if as_json:
        typer.echo(TypeAdapter(Replay).dump_json(result, indent=2))
    else:
        print_replay(result)
    raise typer.Exit(Exit.OK if result.identical else Exit.DIFFERENT)
