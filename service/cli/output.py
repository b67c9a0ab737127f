"""What commands print: responses, tables and JSON, with nothing in them that steers a terminal."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.audit.reports import TAG
from service.cli.exits import BY_CODE, Exit, print_error
from service.errors import Problem
from service.wire.response import BuildResponse, BuildSuccess, DecisionRecord, ErrorBody, Usage

#: Control characters, except tab and newline: a terminal would run them as commands.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: A group of up to this many messages lists all of their ids; a larger one its first and last.
MAX_LISTED_IDS: Final = 2
#: Ids of this length or more are cut to their first characters.
LONG_ID: Final = 15
ID_PREFIX: Final = 12

_DECISION_STYLES: Final[Mapping[str, str]] = {
    "kept": "green",
    "dropped": "red",
    "not_read": "red",
    "filtered": "yellow",
    "truncated": "yellow",
}


# --- responses -------------------------------------------------------------------------------


def print_response(
    response: BuildResponse, *, as_json: bool, show: Callable[[BuildSuccess], None]
) -> Exit:
    """Print a response as JSON or with ``show``, its errors and warnings on stderr.

    Returns the exit code for the response.
    """
    content = response.content
    if as_json:
        typer.echo(response.model_dump_json(indent=2))
    if content.status == "error":
        return _print_failure(content.error)
    if not as_json:
        show(content)
        print_warnings(content)
    return Exit.OK


def _print_failure(error: ErrorBody) -> Exit:
    problems = [Problem(row["pointer"], printable(row["detail"])) for row in error.errors]
    print_error(error.code, printable(error.detail), problems)
    return BY_CODE.get(error.code, Exit.FAILED)


def print_context(content: BuildSuccess, lines: int | None = None) -> None:
    """Print each message below a line with its role; of each at most ``lines`` lines."""
    for number, message in enumerate(content.messages, 1):
        console().rule(f"{number} {message.get('role')}", align="left", style="dim")
        text = printable(_message_text(message)).splitlines()
        # not wrapped, so that a program that reads the output gets the text itself
        typer.echo("\n".join(text[:lines]))
        if lines is not None and len(text) > lines:
            typer.echo(f"… {len(text) - lines} more lines")


def print_summary(content: BuildSuccess) -> None:
    """Print a build's number of messages, tokens and rows of history, in one line."""
    usage = content.usage
    print_text(
        f"{len(content.messages)} messages, {usage.total:,} of {usage.available:,} tokens;"
        f" history: kept {content.kept}, dropped {content.dropped}"
    )


def print_explanation(content: BuildSuccess) -> None:
    """Print what ``--explain`` asks for: messages in outline, tokens by block, and decisions."""
    print_outline(content.messages)
    print_tokens(content.usage)
    typer.echo()
    print_decisions(content)


def print_outline(messages: Sequence[Mapping[str, object]]) -> None:
    """Print a line per message: its role, its block and its first words."""
    rows = table("#", "Role", "Block", "Begins with", numbers=["#"], title="Messages")
    for column in rows.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    # the last column fills the line
    rows.expand, rows.columns[-1].ratio = True, 1
    for number, message in enumerate(messages, 1):
        text = _message_text(message)
        tag = TAG.match(text)
        beginning = " ".join(text[tag.end() if tag else 0 :].split())
        cells = (str(number), message.get("role"), tag.group() if tag else "", beginning)
        rows.add_row(*map(printable, cells))
    console().print(rows)


def print_tokens(usage: Usage) -> None:
    """Print the tokens of each block, the totals last."""
    rows = table("Block", "Tokens", "Share", numbers=["Tokens", "Share"], title="Tokens")
    parts = {**usage.blocks, **({"tools (definitions)": usage.tools} if usage.tools else {})}
    for name, tokens in parts.items():
        rows.add_row(printable(name), f"{tokens:,}", f"{tokens / max(usage.total, 1):.0%}")
    rows.add_section()
    rows.add_row("total", f"{usage.total:,}", "100%", style="bold")
    rows.add_row("available", f"{usage.available:,}", f"{usage.utilization:.0%} used")
    console().print(rows)
    counted = "counted by" if usage.exact else "estimated with"
    print_text(
        f"{counted} {usage.tokenizer}; budget {usage.budget:,}, reserve {usage.reserve:,};"
        f" the first {usage.cacheable_prefix:,} tokens stay the same from build to build"
    )


def print_warnings(content: BuildSuccess) -> None:
    """Print the warnings of a build on stderr."""
    for warning in content.warnings:
        pointer = f" ({warning.pointer})" if warning.pointer else ""
        typer.echo(f"warning: {printable(warning.detail)}{pointer}", err=True)


def _message_text(message: Mapping[str, object]) -> str:
    """Return the text of a message, and a line per tool call."""
    text = message.get("content")
    calls = message.get("tool_calls")
    lines = [text] if isinstance(text, str) and text else []
    return "\n".join([*lines, *_call_lines(calls if isinstance(calls, list) else [])])


def _call_lines(calls: Iterable[object]) -> Iterable[str]:
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield f"calls {function.get('name')}({function.get('arguments')})"


# --- decisions -------------------------------------------------------------------------------


def print_decisions(content: BuildSuccess) -> None:
    """Print the decisions on history, adjacent ones that are alike in one row, the totals last.

    Scores, and the smallest ``memory_tokens`` that would have kept a turn, have a column if any
    decision has one. Decisions of several blocks are under headings.
    """
    extra = [title for title in _EXTRA_COLUMNS if _extra_values(title, content.decisions)]
    numbers = ["Tokens", *extra]
    rows = table("Messages", "Decision", *numbers, "Why", numbers=numbers, title="Decisions")
    rows.columns[0].max_width = 24
    rows.columns[1].no_wrap = True
    several_blocks = len({decision.block for decision in content.decisions}) > 1
    for block, decisions in groupby(content.decisions, key=lambda decision: decision.block):
        if several_blocks:
            rows.add_section()
            rows.add_row(Text(printable(block), style="bold"))
        for _, alike in groupby(decisions, key=lambda row: (row.decision, row.reason)):
            _add_decisions(rows, list(alike), extra)
    console().print(rows)
    not_read = sum(decision.count or 0 for decision in content.decisions)
    unread = f", not read {not_read}" if not_read else ""
    print_text(f"messages: kept {content.kept}, dropped {content.dropped}{unread}")


def styled_decision(decision: str) -> Text:
    """Return a decision in its colour."""
    return Text(decision, style=_DECISION_STYLES.get(decision, ""))


def reason_text(decision: DecisionRecord) -> str:
    """Return the reason of a decision as a sentence."""
    return decision.detail.partition(": ")[2] or decision.reason


def format_ids(ids: Sequence[str]) -> str:
    """Return ids in the width of a cell: of many the first and the last, and their number."""
    if len(ids) <= MAX_LISTED_IDS:
        return ", ".join(map(_shorten_id, ids))
    return f"{_shorten_id(ids[0])} … {_shorten_id(ids[-1])} ({len(ids)})"


#: Columns that are left out if no decision has a value for them.
_EXTRA_COLUMNS: Final[Mapping[str, Callable[[DecisionRecord], float | None]]] = {
    "Score": lambda decision: decision.score,
    "Fits from": lambda decision: decision.smallest_budget,
}


def _add_decisions(rows: Table, alike: Sequence[DecisionRecord], extra: Sequence[str]) -> None:
    ids = [message_id for decision in alike for message_id in decision.message_ids]
    tokens = [decision.tokens for decision in alike if decision.tokens is not None]
    unnamed = f"{sum(decision.count or 0 for decision in alike)} rows"
    rows.add_row(
        printable(format_ids(ids) if ids else unnamed),
        styled_decision(alike[0].decision),
        f"{sum(tokens):,}" if tokens else "",
        *(_format_range(_extra_values(title, alike)) for title in extra),
        printable(reason_text(alike[0])),
    )


def _extra_values(title: str, decisions: Iterable[DecisionRecord]) -> list[float]:
    return [value for value in map(_EXTRA_COLUMNS[title], decisions) if value is not None]


def _format_range(values: Sequence[float]) -> str:
    """Return the lowest and the highest value, once if they are the same."""
    texts = [f"{value:,g}" for value in sorted(values)]
    return " to ".join(dict.fromkeys([texts[0], texts[-1]])) if texts else ""


def _shorten_id(message_id: str) -> str:
    return message_id if len(message_id) < LONG_ID else f"{message_id[:ID_PREFIX]}…"


# --- text, tables, JSON ----------------------------------------------------------------------


def printable(text: object) -> str:
    """Return a text with its control characters replaced, so that a terminal only shows it."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def print_text(text: str) -> None:
    """Print a text, wrapped."""
    console().print(printable(text))


def print_json(document: object) -> None:
    """Print an indented JSON document."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def console() -> Console:
    """Return the console for results: 80 columns if stdout is no terminal."""
    return Console(highlight=False, markup=False, emoji=False)


def table(*columns: str, numbers: Sequence[str] = (), title: str | None = None) -> Table:
    """Return an empty table; the columns named in ``numbers`` are aligned to the right."""
    result = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        right = name in numbers
        result.add_column(
            name, justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    return result
