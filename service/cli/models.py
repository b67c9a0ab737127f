"""``ctxb models``: the token limits of models, and how their tokens are counted."""

from typing import Annotated

import typer

from service.build.plan import limits_of
from service.cli.exits import CommandError
from service.cli.options import Json
from service.cli.output import console, counted, print_json, table
from service.cli.start import start
from service.connect import open_models

models = typer.Typer(no_args_is_help=True)


def complete_model(incomplete: str) -> list[str]:
    """Return the names of the models with shipped limits that begin with a text."""
    return sorted(name for name in open_models().models if name.startswith(incomplete))


Prefix = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", autocompletion=complete_model, help="A model's name, or its beginning."
    ),
]


@models.command()
def ls(ctx: typer.Context, name: Prefix = None, as_json: Json = False) -> None:
    """List the token limits of models: built-in ones, and those of budget.model_limits.

    ctxb models ls
    ctxb models ls claude
    ctxb models ls openai/gpt-5-mini-2025-08-07

    A row applies to all models whose names begin with its name; if several rows
    apply, the longest name counts. The columns input and output have the
    maximum number of tokens of a model's input and of its answer.
    A row without input and output says only how tokens are counted.
    """
    settings = start(ctx.obj)
    shipped = open_models()
    prefix = (name or "").lower()
    known = sorted({*shipped.models, *map(str.lower, settings.budget.model_limits)})
    # a name that no row begins with may begin with a row's
    matching = [row for row in known if row.startswith(prefix)] or [prefix]
    found = {row: limits_of(row, shipped.models, settings.budget) for row in matching}
    rows = {row: limits for row, limits in found.items() if limits}
    if not rows:
        raise CommandError(f"no limits of a model {name!r}; budget.model_limits can add them")
    if as_json:
        listed = [
            {
                "name": name,
                "max_input": limits.max_input,
                "max_output": limits.max_output,
                "tokenizer": limits.counter,
                "exact": limits.exact,
            }
            for name, limits in rows.items()
        ]
        print_json({"date": shipped.date, "source": shipped.source, "models": listed})
        return
    numbers = ["Input", "Output"]
    cells = (
        (name, row.max_input, row.max_output, row.counter, "exact" if row.exact else "estimated")
        for name, row in rows.items()
    )
    console().print(table("Model", *numbers, "Tokenizer", "Counts", rows=cells, numbers=numbers))
    typer.echo(f"{counted(len(rows), 'row')}; shipped limits: {shipped.source}, {shipped.date}")
