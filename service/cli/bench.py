"""``ctxb bench``: how fast this installation is."""

import json
from typing import Annotated

import typer

from service.cli.options import Json

SecondsOf = Annotated[float, typer.Option(min=0.5, max=300, metavar="SECONDS", help="How long.")]
InFlight = Annotated[int, typer.Option(min=1, max=256, help="Requests at the same time.")]
Rows = Annotated[int, typer.Option(min=0, max=2000, help="Rows of history in each request.")]


def bench(
    ctx: typer.Context,
    *,
    seconds: SecondsOf = 5.0,
    concurrency: InFlight = 16,
    history: Rows = 30,
    as_json: Json = False,
) -> None:
    """Measure how many contexts a second this installation builds, and how long one takes.

    ctxb bench
    CTXB_BUS__URL=redis://localhost:6379/0 ctxb bench --seconds 20 --concurrency 64

    With a bus in the settings, the workers there are asked, beside all else
    that they do; without one, a bus and a worker are started for it. Requests
    bring their history along; the little that they leave in the store is
    erased, and answers expire. The exit code is 4 where nobody answers.
    """
    from service.cli.ending import until_told
    from service.cli.self_measure import Load, as_document, measure, print_measured
    from service.cli.start import start

    load = Load(seconds=seconds, concurrency=concurrency, history=history)
    found = until_told(measure(start(ctx.obj), load))
    if as_json:
        typer.echo(json.dumps(as_document(found), indent=2))
        return
    print_measured(found)
