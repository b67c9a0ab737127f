"""``ctxb demo``: a tour of what the service does, on a bus and a worker of its own."""

import asyncio
from typing import Annotated

import typer

InMemory = Annotated[
    bool, typer.Option("--in-memory", help="Use the bus in memory, as where no server is found.")
]


def demo(ctx: typer.Context, in_memory: InMemory = False) -> None:
    """Take a tour: start a bus and a worker, send requests, show the contexts.

    ctxb demo
    ctxb demo | less

    It takes a few seconds, needs neither a key nor a network, and leaves
    nothing behind. Settings of yours are not used.
    """
    from service.cli.demo.tour import tour
    from service.logs import configure_logging

    # the refusals that a worker in this process would warn of are what the tour shows
    configure_logging(ctx.obj.log_level or "error", ctx.obj.log_format or "auto")
    asyncio.run(tour(in_memory=in_memory))
