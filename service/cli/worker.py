"""``ctxb worker``: answer the requests of a bus until told to stop."""

from pathlib import Path
from typing import Annotated

import typer

Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Contexts built at the same time.", show_default=False)
]
Consumer = Annotated[
    str | None, typer.Option(metavar="NAME", help="The worker's name in the consumer group.")
]
ShutdownTimeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Time to finish what was begun, when stopped."),
]
HeartbeatFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Touched while requests are read.")
]
NoRecorder = Annotated[bool, typer.Option("--no-recorder", help="Write no history.")]


def worker(
    ctx: typer.Context,
    concurrency: Concurrency = None,
    consumer: Consumer = None,
    shutdown_timeout: ShutdownTimeout = None,
    heartbeat_file: HeartbeatFile = None,
    no_recorder: NoRecorder = False,
) -> None:
    """Answer the requests of a bus, until SIGTERM or Ctrl-C.

    ctxb worker
    CTXB_BUS__URL=redis://localhost:6379/0 ctxb worker --concurrency 32

    Without a bus in the settings it starts a Redis or Valkey server of its
    own and says how to reach it. When stopped it finishes what it has begun
    and exits with 0; with 143 where the time for that ran out.
    """
    from service.aio import run
    from service.cli.serving import serve
    from service.cli.start import start

    settings = start(
        ctx.obj,
        level="info",
        worker={
            "concurrency": concurrency,
            "consumer": consumer,
            "shutdown_timeout_seconds": shutdown_timeout,
            "heartbeat_file": heartbeat_file,
        },
        recorder={"enabled": False if no_recorder else None},
    )
    raise typer.Exit(run(serve(settings)))
