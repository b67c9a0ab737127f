"""``ctxb config``: the settings in effect, and whether they can be used."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Common, Json

config = typer.Typer(no_args_is_help=True, help="Show and check the settings.")

File = Annotated[
    Path | None, typer.Argument(help="The file to check; else the one that commands would read.")
]


@config.command()
def show(ctx: typer.Context, as_json: Json = False) -> None:
    """Print every setting in effect and where it comes from; secrets are masked.

    ctxb config show
    ctxb -c production.yml config show --json
    """
    from service.cli.start import start
    from service.cli.tables import console, printable, table
    from service.config.load import describe

    found = describe(start(ctx.obj))
    if as_json:
        typer.echo(json.dumps([asdict(setting) for setting in found], indent=2, default=str))
        return
    rows = table("Setting", "Value", "From")
    for setting in found:
        value = json.dumps(setting.value, default=str, ensure_ascii=False)
        rows.add_row(setting.path, printable(value), printable(setting.origin))
    console().print(rows)


@config.command()
def validate(ctx: typer.Context, file: File = None) -> None:
    """Check the settings, and that their strategy, tools and prompt files can be used.

    ctxb config validate
    ctxb config validate production.yml

    Every problem is a line with its place; then the exit code is 3.
    """
    from service.cli.start import start
    from service.parts import check_strategy, open_prompts, open_registry

    common: Common = ctx.obj
    settings = start(Common(config=file) if file else common)
    check_strategy(settings)
    open_prompts(settings)
    tools = open_registry(settings).list_tool_names()
    typer.echo(f"ok: {file or 'the settings'} can be used; {len(tools)} tools")
