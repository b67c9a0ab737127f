"""``ctxb build``: one context, without a bus."""

import typer

from service.cli.ending import until_told
from service.cli.options import Json
from service.cli.request import RequestOptions, make_request, takes_request


@takes_request
def build(ctx: typer.Context, *, asked: RequestOptions, as_json: Json = False) -> None:
    """Build one context here, without a bus, and print its messages.

    ctxb build --owner ana --input "Where were we?" --explain
    ctxb build --owner ana --input "Hi" --history chat.jsonl --max-tokens 4000
    ctxb build --request request.json --strategy middle_out --json

    History and profile come from the store of the settings, to which nothing
    is written.
    """
    from service.app import open_builder
    from service.cli.answers import show_answer
    from service.cli.start import start
    from service.cli.tables import print_account, print_context
    from service.wire.response import BuildResponse

    settings = start(ctx.obj)
    request = make_request(asked)

    async def built() -> BuildResponse:
        async with open_builder(settings) as builder:
            return await builder.handle_build_request(request)

    response = until_told(built())
    show = print_account if asked.explain else print_context
    raise typer.Exit(show_answer(response, as_json=as_json, show=show))
