"""``ctxb config``: write a file of settings, show the settings in effect, and check them."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from service.app import check_settings
from service.cli.checks import try_budget
from service.cli.exits import CommandError
from service.cli.options import Json
from service.cli.output import console, counted, print_json, table
from service.cli.root import CommonOptions
from service.cli.start import start
from service.config.load import describe
from service.config.presets import DESCRIPTIONS, Preset
from service.config.settings_documents import config_schema, template

config = typer.Typer(no_args_is_help=True)

NewFile = Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write.")]
WithSchema = Annotated[
    bool,
    typer.Option("--with-schema", help="Also write the JSON Schema, and refer to it in the file."),
]
ChosenPreset = Annotated[
    Preset | None,
    typer.Option(
        "--preset",
        help="; ".join(f"{name}: {text}" for name, text in DESCRIPTIONS.items()) + ".",
        show_default=False,
    ),
]
CheckedFile = Annotated[
    Path | None, typer.Argument(help="The file to check. Default: the file that commands read.")
]


@config.command()
def show(ctx: typer.Context, as_json: Json = False) -> None:
    """Print every setting in effect and where it comes from; secrets are masked.

    ctxb config show
    ctxb -c production.yml config show --json
    """
    settings = describe(start(ctx.obj))
    if as_json:
        print_json(settings)
        return
    rows = (
        (setting.path, json.dumps(setting.value, default=str, ensure_ascii=False), setting.origin)
        for setting in settings
    )
    console().print(table("Setting", "Value", "From", rows=rows))


@config.command()
def init(
    file: NewFile = Path("config.yml"), preset: ChosenPreset = None, with_schema: WithSchema = False
) -> None:
    """Write a file of all settings with their defaults, each commented out.

    ctxb config init
    ctxb config init --preset recall
    ctxb config init production.yml --with-schema

    A line that begins with "#" and a letter is a setting: remove the "#" and
    change the value. `--preset recall` sets this preset and a small system
    message; `--preset classic` sets nothing. Without --preset, the command asks
    at a terminal, and otherwise uses classic. If the file exists, it isn't
    changed, and the exit code is 1.
    """
    schema_file = file.with_suffix(".schema.json")
    written = (file, schema_file) if with_schema else (file,)
    if existing := [str(path) for path in written if path.exists()]:
        raise CommandError(f"{', '.join(existing)} exists already, and is not overwritten")
    if preset is None and is_terminal():
        question = f"Use the preset recall: {DESCRIPTIONS['recall']}?"
        preset = "recall" if typer.confirm(question, default=True, err=True) else "classic"
    files = {file: template(preset or "classic")}
    if with_schema:
        # YAML language servers of editors look for this line
        files[file] = f"# yaml-language-server: $schema={schema_file.name}\n{files[file]}"
        files[schema_file] = f"{json.dumps(config_schema(), indent=2)}\n"
    _write_new(files)
    typer.echo(f"{', '.join(map(str, files))} written; ctxb config validate {file} checks it")


@config.command()
def schema() -> None:
    """Print the JSON Schema of settings files, for completion and checks in editors.

    ctxb config schema > config.schema.json

    Refer to the schema in the first line of the settings file:

    # yaml-language-server: $schema=config.schema.json
    """
    typer.echo(json.dumps(config_schema(), indent=2))


@config.command()
def validate(ctx: typer.Context, file: CheckedFile = None) -> None:
    """Check settings, URLs, tokenizers, strategy, budget, and files of tools and prompts.

    ctxb config validate
    ctxb config validate production.yml

    The command prints a line with the position of each wrong setting, or the
    first other problem, and exits with 3. A renamed or removed setting is only
    a warning.
    """
    settings = start(CommonOptions(config=file) if file else ctx.obj, log_outdated=False)
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
    tools = check_settings(settings).list_tool_names()
    for warning in asyncio.run(try_budget(settings)):
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"ok: {file or 'the settings'} can be used; {counted(len(tools), 'tool')}")


def is_terminal() -> bool:
    """Return whether stdin is a terminal, so that prompts can be answered."""
    return sys.stdin.isatty()


def _write_new(files: Mapping[Path, str]) -> None:
    """Write files that don't exist yet; raises `CommandError`."""
    for path, text in files.items():
        try:
            # "x" fails if another process has just written the file
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise CommandError(f"{path} is not written: {error.strerror}") from error
