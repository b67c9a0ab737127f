"""``ctxb send``: publish a request, and wait for the answer."""

import asyncio
import time
from typing import Annotated, Literal

import typer

from service.cli.options import Json
from service.cli.request import RequestOptions, make_request, takes_request

Via = Annotated[
    Literal["stream", "channel"],
    typer.Option(help="stream waits for a worker where there is none; channel does not."),
]
Timeout = Annotated[
    float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for the answer.")
]


@takes_request
def send(
    ctx: typer.Context,
    *,
    asked: RequestOptions,
    via: Via = "stream",
    timeout: Timeout = 15.0,
    as_json: Json = False,
) -> None:
    """Publish a request on the bus and wait for a worker's answer.

    ctxb send --owner ana --input "Hello"
    ctxb send --owner ana --input "Hello" --via channel --timeout 2 --json
    ctxb send --request request.json --explain

    The smoke test of a deployment: it exits with 4 where nobody answers, with
    5 where the bus can't be reached, and with 3 where the settings name none.
    """
    from service.cli.answers import show_answer
    from service.cli.start import shared_bus, start
    from service.cli.tables import print_account, print_summary
    from service.connect import connect_client, open_bus, open_tracer
    from service.wire.response import BuildResponse

    settings = shared_bus(start(ctx.obj))
    request = make_request(asked)

    async def sent() -> tuple[BuildResponse, float]:
        async with (
            open_tracer(settings) as tracer,
            open_bus(settings) as connected,
            connect_client(settings, connected.bus, tracer) as client,
        ):
            before = time.perf_counter()
            response = await client.send(request, timeout_seconds=timeout, via=via)
            return response, time.perf_counter() - before

    response, seconds = asyncio.run(sent())
    if not as_json:
        typer.echo(f"{response.content.status} in {seconds * 1000:.0f} ms: {response.id}")
    show = print_account if asked.explain else print_summary
    raise typer.Exit(show_answer(response, as_json=as_json, show=show))
