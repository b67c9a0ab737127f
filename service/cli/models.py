"""``ctxb models``: the token limits of models, and how their tokens are counted."""

from collections.abc import Mapping
from typing import Annotated

import typer

from service.budget.limits import ModelLimits, Models, ModelTable
from service.build.plan import limits_of
from service.cli.exits import Exit, print_error
from service.cli.options import Json
from service.cli.output import console, print_json, printable, table
from service.cli.start import start
from service.config.settings import BudgetSettings
from service.connect import open_models

models = typer.Typer(no_args_is_help=True, help="List the limits of models.")


def complete_model(incomplete: str) -> list[str]:
    """Return the names of the models with shipped limits that begin with a text."""
    return sorted(name for name in open_models().models if name.startswith(incomplete))


Prefix = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        autocompletion=complete_model,
        help="A model, or the beginning of models' names.",
    ),
]


@models.command()
def ls(ctx: typer.Context, name: Prefix = None, as_json: Json = False) -> None:
    """List the limits of models: those of the settings, else those that come with the service.

    ctxb models ls
    ctxb models ls claude
    ctxb models ls openai/gpt-5-mini-2025-08-07

    The limits of a model are those of the longest row that its name begins
    with. Input and output are maximums, in tokens; a row without them says
    how the tokens of a family of models are counted.
    """
    settings = start(ctx.obj)
    shipped = open_models()
    rows = find_models(name or "", shipped.models, settings.budget)
    if not rows:
        print_error("unknown", f"no limits of a model {name!r}; budget.model_limits can add them")
        raise typer.Exit(Exit.FAILED)
    if as_json:
        print_json(models_dict(rows, shipped))
    else:
        print_models(rows, shipped)


def find_models(prefix: str, models: Models, budget: BudgetSettings) -> dict[str, ModelLimits]:
    """Return the rows whose names begin with a prefix, or else the limits of that model, if any."""
    prefix = prefix.lower()
    names = sorted({*models, *map(str.lower, budget.model_limits)})
    matching = [name for name in names if name.startswith(prefix)] or [prefix]
    limits = {name: limits_of(name, models, budget) for name in matching}
    return {name: known for name, known in limits.items() if known}


def print_models(rows: Mapping[str, ModelLimits], shipped: ModelTable) -> None:
    """Print a table, and the source of the shipped rows."""
    numbers = ["Input", "Output"]
    output = table("Model", *numbers, "Tokenizer", "Counts", numbers=numbers)
    for name, limits in rows.items():
        sizes = map(_number, (limits.max_input, limits.max_output))
        counts = "exact" if limits.exact else "estimated"
        output.add_row(*map(printable, (name, *sizes, limits.counter, counts)))
    console().print(output)
    typer.echo(f"{len(rows)} rows; shipped limits: {shipped.source}, {shipped.date}")


def models_dict(rows: Mapping[str, ModelLimits], shipped: ModelTable) -> dict[str, object]:
    """Return the rows as JSON."""
    models = [
        {
            "name": name,
            "max_input": limits.max_input,
            "max_output": limits.max_output,
            "tokenizer": limits.counter,
            "exact": limits.exact,
        }
        for name, limits in rows.items()
    ]
    return {"date": shipped.date, "source": shipped.source, "models": models}


def _number(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"
