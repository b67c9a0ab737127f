"""``ctxb config``: write a file of settings, show the settings in effect, and check them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from service.build.plugins import configured_strategies
from service.cli.exits import Exit, print_error
from service.cli.options import Json
from service.cli.output import console, printable, table
from service.cli.root import CommonOptions
from service.cli.start import start
from service.config.documents import config_schema, template
from service.config.load import describe
from service.connect import open_prompts, open_registry

config = typer.Typer(no_args_is_help=True, help="Write, show and check the settings.")

NewFile = Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write.")]
WithSchema = Annotated[
    bool,
    typer.Option("--with-schema", help="Write the JSON Schema next to it, and refer to it."),
]
CheckedFile = Annotated[
    Path | None, typer.Argument(help="The file to check; default: the one that commands read.")
]


@config.command()
def show(ctx: typer.Context, as_json: Json = False) -> None:
    """Print every setting in effect and where it comes from; secrets are masked.

    ctxb config show
    ctxb -c production.yml config show --json
    """
    settings = describe(start(ctx.obj))
    if as_json:
        typer.echo(json.dumps([asdict(setting) for setting in settings], indent=2, default=str))
        return
    rows = table("Setting", "Value", "From")
    for setting in settings:
        value = json.dumps(setting.value, default=str, ensure_ascii=False)
        rows.add_row(setting.path, printable(value), printable(setting.origin))
    console().print(rows)


@config.command()
def init(file: NewFile = Path("config.yml"), with_schema: WithSchema = False) -> None:
    """Write a file of all settings with their defaults, each commented out.

    ctxb config init
    ctxb config init production.yml --with-schema

    A line that begins with "#" and a letter is a setting: remove the "#" to
    change its value. No file is ever overwritten: if there is one already, the
    exit code is 1.
    """
    files = {file: template()}
    if with_schema:
        schema_file = file.with_suffix(".schema.json")
        # YAML language servers of editors look for this line
        files[file] = f"# yaml-language-server: $schema={schema_file.name}\n{files[file]}"
        files[schema_file] = _schema_text()
    _write_new(files)
    typer.echo(f"{', '.join(map(str, files))} written; ctxb config validate {file} checks it")


@config.command()
def schema() -> None:
    """Print the JSON Schema of configuration files, by which editors complete and check them.

    ctxb config schema > config.schema.json

    A file refers to it in its first line:

    # yaml-language-server: $schema=config.schema.json
    """
    typer.echo(_schema_text(), nl=False)


@config.command()
def validate(ctx: typer.Context, file: CheckedFile = None) -> None:
    """Check the settings, and that their strategy, tools and prompt files can be used.

    ctxb config validate
    ctxb config validate production.yml

    Every problem is a line with its position; then the exit code is 3. Settings
    that were renamed or removed are warnings only.
    """
    settings = start(CommonOptions(config=file) if file else ctx.obj, log_outdated=False)
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
    configured_strategies(settings)
    open_prompts(settings)
    tools = open_registry(settings).list_tool_names()
    typer.echo(f"ok: {file or 'the settings'} can be used; {len(tools)} tools")


def _schema_text() -> str:
    return json.dumps(config_schema(), indent=2) + "\n"


def _write_new(files: Mapping[Path, str]) -> None:
    """Write all files, or none if one exists already; raises `typer.Exit`."""
    if existing := [path for path in files if path.exists()]:
        _refuse(f"{', '.join(map(str, existing))} exists already, and is not overwritten")
    for path, text in files.items():
        try:
            # "x" fails if another process has just written the file
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            _refuse(f"{path}: {error.strerror}")


def _refuse(cause: str) -> NoReturn:
    print_error("not written", cause)
    raise typer.Exit(Exit.FAILED)
