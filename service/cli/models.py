"""``ctxb models``: what models take, and how their tokens are counted."""

import json
from typing import Annotated

import typer

from service.cli import completion
from service.cli.options import Json

models = typer.Typer(no_args_is_help=True, help="List the limits of models.")

Prefix = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        autocompletion=completion.models,
        help="A model, or what the names of models begin with.",
    ),
]


@models.command()
def ls(ctx: typer.Context, name: Prefix = None, as_json: Json = False) -> None:
    """List the limits of models: those of the settings, else those that come with the service.

    ctxb models ls
    ctxb models ls claude
    ctxb models ls openai/gpt-5-mini-2025-08-07

    A model is known by the longest start of its name. Input and output are tokens at most; a row
    without them says how a family's tokens are counted.
    """
    from service.cli.exits import Exit, tell
    from service.cli.limits import as_document, find_models, print_models
    from service.cli.start import start
    from service.connect import open_models

    settings = start(ctx.obj)
    table = open_models()
    found = find_models(name or "", table.models, settings.budget)
    if not found:
        tell("unknown", f"nothing is known of a model {name!r}; budget.model_limits can name it")
        raise typer.Exit(Exit.FAILED)
    if as_json:
        typer.echo(json.dumps(as_document(found, table), indent=2))
        return
    print_models(found, table)
