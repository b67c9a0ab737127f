"""What people are shown: messages, tables, and nothing that could steer their terminal."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.audit.reports import TAG
from service.wire.response import BuildSuccess, DecisionRecord, Usage

#: Control characters but tab and newline: in people's words they could be commands to a terminal.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: Ids of messages that are named one by one in a row of the table of decisions.
NAMED_IDS: Final = 2
#: Characters from which on such an id is cut, and those that stay of it.
LONG_ID: Final = 15
ID_START: Final = 12

#: How a decision is coloured where there are colours.
_STYLES: Final[Mapping[str, str]] = {
    "kept": "green",
    "dropped": "red",
    "not_read": "red",
    "filtered": "yellow",
    "truncated": "yellow",
}


def printable(text: object) -> str:
    """Return a text that a terminal only shows."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def console() -> Console:
    """Return the console for results: 80 columns where stdout is no terminal."""
    return Console(highlight=False, markup=False, emoji=False)


def table(*columns: str, numbers: Sequence[str] = (), title: str | None = None) -> Table:
    """Return an empty table; the columns named in ``numbers`` are set to the right."""
    result = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        right = name in numbers
        result.add_column(
            name, justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    return result


def say(text: str) -> None:
    """Print a sentence, wrapped."""
    console().print(printable(text))


def print_context(content: BuildSuccess, lines: int | None = None) -> None:
    """Print the messages, each below a line with its role; at most so many ``lines`` of each."""
    for number, message in enumerate(content.messages, 1):
        console().rule(f"{number} {message.get('role')}", align="left", style="dim")
        said = printable(_words(message)).splitlines()
        # not wrapped: what is piped on is the text itself
        typer.echo("\n".join(said[:lines]))
        if lines is not None and len(said) > lines:
            typer.echo(f"… {len(said) - lines} more lines")


def print_summary(content: BuildSuccess) -> None:
    """Print what a build comes to, in a line."""
    usage = content.usage
    say(
        f"{len(content.messages)} messages, {usage.total:,} of {usage.available:,} tokens;"
        f" history: kept {content.kept}, dropped {content.dropped}"
    )


def print_outline(messages: Sequence[Mapping[str, object]]) -> None:
    """Print a line for each message: its role, its block, and how it goes on."""
    rows = table("#", "Role", "Block", "Begins with", numbers=["#"], title="Messages")
    for column in rows.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    # the beginning takes what the others leave of the line
    rows.expand, rows.columns[-1].ratio = True, 1
    for number, message in enumerate(messages, 1):
        words = _words(message)
        tag = TAG.match(words)
        start = " ".join(words[tag.end() if tag else 0 :].split())
        shown = (str(number), message.get("role"), tag.group() if tag else "", start)
        rows.add_row(*map(printable, shown))
    console().print(rows)


def print_tokens(usage: Usage) -> None:
    """Print where the tokens went, the totals last."""
    rows = table("Block", "Tokens", "Share", numbers=["Tokens", "Share"], title="Tokens")
    parts = {**usage.blocks, **({"tools (definitions)": usage.tools} if usage.tools else {})}
    for name, tokens in parts.items():
        rows.add_row(printable(name), f"{tokens:,}", f"{tokens / max(usage.total, 1):.0%}")
    rows.add_section()
    rows.add_row("total", f"{usage.total:,}", "100%", style="bold")
    rows.add_row("available", f"{usage.available:,}", f"{usage.utilization:.0%} used")
    console().print(rows)
    counted = "counted by" if usage.exact else "estimated with"
    say(
        f"{counted} {usage.tokenizer}; budget {usage.budget:,}, reserve {usage.reserve:,};"
        f" the first {usage.cacheable_prefix:,} tokens stay the same from build to build"
    )


def print_decisions(content: BuildSuccess) -> None:
    """Print what became of the history, neighbours of one fate in one row, the totals last.

    A score, and the least ``memory_tokens`` that would have kept a turn, have columns where a
    decision has them. Where a run is in flight, its messages stand under a heading.
    """
    extra = [column for column in _EXTRA if column.values(content.decisions)]
    numbers = ["Tokens", *(column.title for column in extra)]
    rows = table("Messages", "Decision", *numbers, "Why", numbers=numbers, title="Decisions")
    rows.columns[0].max_width = 24
    rows.columns[1].no_wrap = True
    parts = groupby(content.decisions, key=lambda each: each.block)
    named = len({each.block for each in content.decisions}) > 1
    for block, decisions in parts:
        if named:
            rows.add_section()
            rows.add_row(Text(printable(block), style="bold"))
        fates = groupby(decisions, key=lambda each: (each.decision, each.reason))
        for (decision, _), alike in fates:
            _add_decisions(rows, decision, list(alike), extra)
    console().print(rows)
    not_read = sum(each.count or 0 for each in content.decisions)
    unread = f", not read {not_read}" if not_read else ""
    say(f"messages: kept {content.kept}, dropped {content.dropped}{unread}")


def print_warnings(content: BuildSuccess) -> None:
    """Print the warnings of a build on stderr."""
    for warning in content.warnings:
        place = f" ({warning.pointer})" if warning.pointer else ""
        typer.echo(f"warning: {printable(warning.detail)}{place}", err=True)


def print_account(content: BuildSuccess) -> None:
    """Print all that a build has to say about itself."""
    print_outline(content.messages)
    print_tokens(content.usage)
    typer.echo()
    print_decisions(content)


@dataclass(frozen=True, slots=True)
class _Extra:
    """A column that a table of decisions has only where there is something to put into it."""

    title: str
    value: Callable[[DecisionRecord], float | None]

    def values(self, decisions: Iterable[DecisionRecord]) -> list[float]:
        return [value for value in map(self.value, decisions) if value is not None]

    def cell(self, alike: Sequence[DecisionRecord]) -> str:
        shown = [f"{value:,g}" for value in sorted(self.values(alike))]
        return " to ".join(dict.fromkeys([shown[0], shown[-1]])) if shown else ""


_EXTRA: Final = (
    _Extra("Score", lambda decision: decision.score),
    _Extra("Fits from", lambda decision: decision.smallest_budget),
)


def _add_decisions(
    rows: Table, decision: str, alike: Sequence[DecisionRecord], extra: Iterable[_Extra]
) -> None:
    ids = [name for each in alike for name in each.message_ids]
    tokens = [each.tokens for each in alike if each.tokens is not None]
    rows.add_row(
        printable(named_ids(ids) if ids else f"{sum(each.count or 0 for each in alike)} rows"),
        fate(decision),
        f"{sum(tokens):,}" if tokens else "",
        *(column.cell(alike) for column in extra),
        printable(why(alike[0])),
    )


def fate(decision: str) -> Text:
    """Return what became of a message, coloured where there are colours."""
    return Text(decision, style=_STYLES.get(decision, ""))


def why(decision: DecisionRecord) -> str:
    """Return the reason of a decision as a sentence."""
    return decision.detail.partition(": ")[2] or decision.reason


def named_ids(ids: Sequence[str]) -> str:
    """Return ids in a cell's width: of many the first and the last, and how many they are."""
    if len(ids) <= NAMED_IDS:
        return ", ".join(map(_short, ids))
    return f"{_short(ids[0])} … {_short(ids[-1])} ({len(ids)})"


def _short(name: str) -> str:
    return name if len(name) < LONG_ID else f"{name[:ID_START]}…"


def _words(message: Mapping[str, object]) -> str:
    """Return what a message says, and which tools it calls."""
    said = message.get("content")
    calls = message.get("tool_calls")
    lines = [said] if isinstance(said, str) and said else []
    return "\n".join([*lines, *_calls(calls if isinstance(calls, list) else [])])


def _calls(calls: Iterable[object]) -> Iterable[str]:
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield f"calls {function.get('name')}({function.get('arguments')})"
