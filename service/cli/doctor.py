"""``ctxb doctor``: whether an installation is as it should be, and what to do where it isn't."""

import json

import typer

from service.cli.exits import Exit
from service.cli.options import Json


def doctor(ctx: typer.Context, as_json: Json = False) -> None:
    """Look over an installation: settings, bus, store, tokenizers, tools, prompts, HTTP, disks.

    ctxb doctor
    ctxb -c production.yml doctor --json

    Run it where the workers run, with their settings. Each line is ok, warn
    or fail, with its cause and what to do about it. Nothing is changed: of
    the bus it asks what a worker may do without doing it, and servers of tools
    are asked for their tools. The exit code is 1 where a line says fail, and
    3 where the settings can't be read.
    """
    from service.cli.checkup.running import as_document, look_at_all, print_findings
    from service.cli.ending import until_told
    from service.cli.start import start

    found = until_told(look_at_all(start(ctx.obj, log_outdated=False)))
    if as_json:
        typer.echo(json.dumps(as_document(found), indent=2, ensure_ascii=False))
    else:
        print_findings(found)
    if any(each.state == "fail" for each in found):
        raise typer.Exit(Exit.FAILED)
