"""Limits of models as people see them."""

from collections.abc import Mapping

import typer

from service.budget.limits import ModelLimits, Models, ModelTable
from service.build.plan import limits_of
from service.cli.tables import console, printable, table
from service.config.settings import BudgetSettings


def find_models(start: str, models: Models, budget: BudgetSettings) -> dict[str, ModelLimits]:
    """Return the rows whose names begin so, else what a model of that name would get, if it may."""
    start = start.lower()
    names = sorted({*models, *map(str.lower, budget.model_limits)})
    found = [name for name in names if name.startswith(start)] or [start]
    limits = {name: limits_of(name, models, budget) for name in found}
    return {name: each for name, each in limits.items() if each}


def print_models(models: Mapping[str, ModelLimits], source: ModelTable) -> None:
    """Print a table, and below it where the shipped rows are from."""
    numbers = ["Input", "Output"]
    rows = table("Model", *numbers, "Tokenizer", "Counts", numbers=numbers)
    for name, limits in models.items():
        sizes = map(_number, (limits.max_input, limits.max_output))
        counts = "exact" if limits.exact else "estimated"
        rows.add_row(*map(printable, (name, *sizes, limits.counter, counts)))
    console().print(rows)
    typer.echo(f"{len(models)} rows; shipped limits: {source.source}, {source.date}")


def as_document(models: Mapping[str, ModelLimits], source: ModelTable) -> dict[str, object]:
    """Return the rows as JSON holds them."""
    rows = [
        {
            "name": name,
            "max_input": limits.max_input,
            "max_output": limits.max_output,
            "tokenizer": limits.counter,
            "exact": limits.exact,
        }
        for name, limits in models.items()
    ]
    return {"date": source.date, "source": source.source, "models": rows}


def _number(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"
