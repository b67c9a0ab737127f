"""``ctxb tail``: builds and events as they come over the bus."""

from functools import partial
from typing import Annotated

import typer

from service.cli.options import check_owner

OnlyOwner = Annotated[
    str | None,
    typer.Option("--owner", "-o", metavar="KEY", callback=check_owner, help="Only this owner's."),
]
Owners = Annotated[bool, typer.Option("--owners", help="Show owner keys, not their hashes.")]
Failed = Annotated[bool, typer.Option("--failed", help="Only what was answered with an error.")]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many lines.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]


def tail(
    ctx: typer.Context,
    *,
    owner: OnlyOwner = None,
    failed: Failed = False,
    count: Count = None,
    owners: Owners = False,
    as_json: JsonLines = False,
) -> None:
    """Follow builds and events as they come over the bus, until Ctrl-C.

    ctxb tail
    ctxb tail --owner ana
    ctxb tail --failed --json | jq .error

    A line tells what a build came to, or that rows fell out of a context or
    were summarised, and nothing of what was said. Heard are all answers on
    channels, those of bus.reply_prefixes too, but none that go to lists and
    streams; events always go to channels, whatever the answer went to. What
    came before, a worker's inspector has (docs/http.md).
    """
    from service.cli import feed
    from service.cli.ending import until_told
    from service.cli.start import shared_bus, start

    settings = shared_bus(start(ctx.obj))
    wanted = feed.Wanted(owner_key=owner, failed=failed, most=count)
    shown = partial(feed.as_json if as_json else feed.as_line, owners=owners)
    until_told(feed.follow(settings, wanted, shown), endless=True)
