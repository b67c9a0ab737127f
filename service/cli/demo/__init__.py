"""``ctxb demo``: a tour of what the service does, on a bus and a worker of its own."""

from typing import Annotated

import typer

from service.cli.ending import until_told

InMemory = Annotated[
    bool, typer.Option("--in-memory", help="Use the bus in memory, as where no server is found.")
]


Serve = Annotated[
    bool, typer.Option("--serve", help="Keep the inspector open after the tour, until Ctrl-C.")
]


def demo(ctx: typer.Context, in_memory: InMemory = False, serve: Serve = False) -> None:
    """Take a tour: start a bus and a worker, send requests, show the contexts.

    ctxb demo
    ctxb demo | less
    ctxb demo --serve

    It takes a few seconds, needs neither a key nor a network, and leaves
    nothing behind. Settings of yours are not used.

    With --serve the worker stays, and shows its builds in a browser, with
    what was said in them: in this demo alone, the words are nobody's.
    """
    from service.cli.demo.tour import tour
    from service.observe.logs import configure_logging

    # the refusals that a worker in this process would warn of are what the tour shows
    configure_logging(ctx.obj.log_level or "error", ctx.obj.log_format or "auto")
    until_told(tour(in_memory=in_memory, serve=serve))
