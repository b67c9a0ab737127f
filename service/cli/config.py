"""``ctxb config``: a file to begin with, the settings in effect, and whether they can be used."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Common, Json

config = typer.Typer(no_args_is_help=True, help="Write, show and check the settings.")

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


NewFile = Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write it.")]
WithSchema = Annotated[
    bool,
    typer.Option("--with-schema", help="Write the JSON Schema beside it, and let it name that."),
]


@config.command()
def init(file: NewFile = Path("config.yml"), with_schema: WithSchema = False) -> None:
    """Write a file of all settings with their defaults, none of which is set yet.

    ctxb config init
    ctxb config init production.yml --with-schema

    A line that begins with "#" and a letter is a setting: take the "#" away to
    change its value. The exit code is 1 where there is such a file already:
    none is ever overwritten.
    """
    from service.cli.config_files import write_new
    from service.config.documents import config_schema, template

    files = {file: template()}
    if with_schema:
        schema_file = file.with_suffix(".schema.json")
        # YAML servers of editors look for this line
        files[file] = f"# yaml-language-server: $schema={schema_file.name}\n{files[file]}"
        files[schema_file] = json.dumps(config_schema(), indent=2) + "\n"
    write_new(files)
    typer.echo(f"{', '.join(map(str, files))} written; ctxb config validate {file} checks it")


@config.command()
def schema() -> None:
    """Print the JSON Schema of configuration files, by which editors complete and check them.

    ctxb config schema > config.schema.json

    A file names it in its first line:

    # yaml-language-server: $schema=config.schema.json
    """
    from service.config.documents import config_schema

    typer.echo(json.dumps(config_schema(), indent=2))


@config.command()
def validate(ctx: typer.Context, file: File = None) -> None:
    """Check the settings, and that their strategy, tools and prompt files can be used.

    ctxb config validate
    ctxb config validate production.yml

    Every problem is a line with its place; then the exit code is 3. Settings
    that were renamed or removed are warnings only.
    """
    from service.build.strategies import check_strategy
    from service.cli.start import start
    from service.connect import open_prompts, open_registry

    common: Common = ctx.obj
    settings = start(Common(config=file) if file else common, log_outdated=False)
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
    check_strategy(settings)
    open_prompts(settings)
    tools = open_registry(settings).list_tool_names()
    typer.echo(f"ok: {file or 'the settings'} can be used; {len(tools)} tools")
