"""Output of all commands: text, tables and JSON, with nothing that steers a terminal."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from formatters.rows import inflect
from service.observe.logs import owner_hash

#: Control characters, except tab and newline: a terminal would run them as commands.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: object) -> str:
    """Return a text with its control characters replaced, so that a terminal only shows it."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def counted(number: int, noun: str) -> str:
    """Return a number with commas, and its noun."""
    return f"{number:,} {inflect(noun, number)}"


def note_if_none(rows: Sequence[object]) -> None:
    """Say on stderr that there are no rows, unless there are."""
    if not rows:
        typer.echo("note: the store has no such rows of this owner", err=True)


def hash_owner(owner_key: str | None) -> str | None:
    """Return an owner as logs show it; None for an unknown owner."""
    return None if owner_key is None else owner_hash(owner_key)


def print_text(text: str) -> None:
    """Print a text, wrapped."""
    console().print(printable(text))


def console() -> Console:
    """Return the console for results: 80 columns if stdout is no terminal."""
    return Console(highlight=False, markup=False, emoji=False)


def table(
    *columns: str,
    rows: Iterable[Sequence[object]] = (),
    numbers: Sequence[str] = (),
    unbroken: Sequence[str] = (),
    title: str | None = None,
) -> Table:
    """Return a table of printable cells.

    The columns named in ``numbers`` are aligned to the right; neither they nor those named in
    ``unbroken`` are wrapped.
    """
    result = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        right = name in numbers
        result.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=right or name in unbroken,
            overflow="fold",
        )
    for row in rows:
        result.add_row(*map(cell, row))
    return result


def cell(value: object) -> Text | str:
    """Return what a table shows of a value: of a number its groups of digits, of None a dash."""
    if isinstance(value, Text):
        return value
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else printable(value)


def print_json(document: object, *, indent: int | None = 2) -> None:
    """Print a JSON document, in which dataclasses are objects and times have ISO's form."""
    typer.echo(json.dumps(document, indent=indent, ensure_ascii=False, default=_to_json))


def _to_json(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.isoformat() if isinstance(value, datetime) else str(value)
