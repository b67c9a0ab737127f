"""Print a build: its messages, tokens and decisions, or why it failed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import typer
from rich.table import Table
from rich.text import Text

from service.audit.reports import TAG
from service.cli.exits import BY_CODE, Exit, print_error
from service.cli.output import console, counted, print_text, printable, table
from service.cli.previews import NO_TEXTS, Texts, format_messages
from service.errors import Problem
from service.wire.response import (
    BuildResponse,
    BuildSuccess,
    DecisionRecord,
    ErrorBody,
    Usage,
    WarningRecord,
)

_DECISION_STYLES: Final[Mapping[str, str]] = {
    "kept": "green",
    "annotated": "yellow",
    "previewed": "yellow",
    "dropped": "red",
    "not_read": "red",
    "filtered": "yellow",
    "truncated": "yellow",
}


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
        return print_failure(content.error)
    if not as_json:
        show(content)
        print_warnings(content.warnings)
    return Exit.OK


def print_failure(error: ErrorBody, name: Callable[[str], str] = str) -> Exit:
    """Print the error of a response on stderr; returns its exit code.

    ``name`` replaces pointers in texts by what a person knows.
    """
    problems = [Problem(name(row["pointer"]), printable(row["detail"])) for row in error.errors]
    print_error(error.code, printable(name(error.detail)), problems)
    return BY_CODE.get(error.code, Exit.FAILED)


def print_context(content: BuildSuccess, lines: int | None = None) -> None:
    """Print each message below a line with its role; of each at most ``lines`` lines."""
    for number, message in enumerate(content.messages, 1):
        console().rule(f"{number} {message.get('role')}", align="left", style="dim")
        text = printable(_message_text(message)).splitlines()
        # not wrapped, so that a program that reads the output gets the text itself
        typer.echo("\n".join(text[:lines]))
        if lines is not None and len(text) > lines:
            typer.echo(f"… {counted(len(text) - lines, 'more line')}")


def print_summary(content: BuildSuccess) -> None:
    """Print a build's number of messages, tokens and rows of history, in one line."""
    usage = content.usage
    print_text(
        f"{counted(len(content.messages), 'message')}, {usage.total:,} of {usage.available:,}"
        f" tokens; history: {_format_outcomes(content)}"
    )


def print_explanation(content: BuildSuccess, texts: Texts = NO_TEXTS) -> None:
    """Print the output of ``--explain``: messages in outline, tokens by block, and decisions.

    ``texts`` are of messages that the caller knows, by their ids; decisions show their first words.
    """
    print_outline(content.messages)
    print_tokens(content.usage)
    typer.echo()
    print_decisions(content, texts)


def print_outline(messages: Sequence[Mapping[str, object]]) -> None:
    """Print a line per message: its role, its block and its first words."""
    rows = []
    for number, message in enumerate(messages, 1):
        text = _message_text(message)
        tag = TAG.match(text)
        beginning = " ".join(text[tag.end() if tag else 0 :].split())
        rows.append((number, message.get("role"), tag.group() if tag else "", beginning))
    columns = ("#", "Role", "Block", "Begins with")
    outline = table(*columns, rows=rows, numbers=columns[:1], title="Messages")
    for column in outline.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    # the last column fills the line
    outline.expand, outline.columns[-1].ratio = True, 1
    console().print(outline)


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


def print_warnings(warnings: Iterable[WarningRecord], name: Callable[[str], str] = str) -> None:
    """Print the warnings of a response on stderr, as `print_failure` prints an error."""
    for warning in warnings:
        pointer = f" ({name(warning.pointer)})" if warning.pointer else ""
        typer.echo(f"warning: {printable(warning.detail)}{pointer}", err=True)


def _message_text(message: Mapping[str, object]) -> str:
    """Return the text of a message, and a line per tool call."""
    text, calls = message.get("content"), message.get("tool_calls")
    lines = [text] if isinstance(text, str) and text else []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            lines.append(f"calls {function.get('name')}({function.get('arguments')})")
    return "\n".join(lines)


def print_decisions(content: BuildSuccess, texts: Texts = NO_TEXTS) -> None:
    """Print the decisions on history, the totals last."""
    if not content.decisions:
        print_text("Decisions: none, since no history was read")
        return
    console().print(decisions_table(content.decisions, texts))
    print_text(f"messages: {_format_outcomes(content)}")


def _format_outcomes(content: BuildSuccess) -> str:
    """Return the number of messages for each decision that there is."""
    counts = content.outcomes.items()
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts)


def decisions_table(decisions: Sequence[DecisionRecord], texts: Texts = NO_TEXTS) -> Table:
    """Return a table of decisions, with adjacent ones that are alike in one row.

    Below the ids are the first words of the first and the last message, if ``texts`` has them.
    Scores, and the smallest ``memory_tokens`` that would have kept a turn, have a column if any
    decision has one. Decisions of several blocks are under headings.
    """
    extra = [title for title in _EXTRA_COLUMNS if _extra_values(title, decisions)]
    numbers = ["Tokens", *extra]
    rows = table(
        *("Messages", "Decision", *numbers, "Why"),
        numbers=numbers,
        unbroken=["Decision"],
        title="Decisions",
    )
    rows.columns[0].max_width = 24
    several_blocks = len({decision.block for decision in decisions}) > 1
    for block, of_block in groupby(decisions, key=lambda decision: decision.block):
        if several_blocks:
            rows.add_section()
            rows.add_row(Text(printable(block), style="bold"))
        for alike in _neighbours(of_block):
            _add_decisions(rows, alike, extra, texts)
    return rows


def _neighbours(decisions: Iterable[DecisionRecord]) -> Iterator[list[DecisionRecord]]:
    """Group adjacent decisions that are alike."""
    groups = groupby(decisions, key=lambda row: (row.block, row.decision, row.reason))
    return (list(alike) for _, alike in groups)


def decided_ids(decisions: Iterable[DecisionRecord]) -> list[str]:
    """Return the ids of all messages that were decided on."""
    return [message_id for decision in decisions for message_id in decision.message_ids]


def styled_decision(decision: str) -> Text:
    """Return a decision in its colour."""
    return Text(decision, style=_DECISION_STYLES.get(decision, ""))


def reason_text(decision: DecisionRecord) -> str:
    """Return the reason of a decision as a sentence."""
    return decision.detail.partition(": ")[2] or decision.reason


#: Columns that are left out if no decision has a value for them.
_EXTRA_COLUMNS: Final[Mapping[str, Callable[[DecisionRecord], float | None]]] = {
    "Score": lambda decision: decision.score,
    "Fits from": lambda decision: decision.smallest_budget,
}


def _add_decisions(
    rows: Table, alike: Sequence[DecisionRecord], extra: Sequence[str], texts: Texts
) -> None:
    ids = decided_ids(alike)
    unnamed = counted(sum(decision.count or 0 for decision in alike), "row")
    rows.add_row(
        format_messages(ids, texts) if ids else unnamed,
        styled_decision(alike[0].decision),
        _format_tokens([decision.tokens for decision in alike]),
        *(_format_range(_extra_values(title, alike)) for title in extra),
        printable(reason_text(alike[0])),
    )


def _format_tokens(counts: Sequence[int | None]) -> str:
    """Return the sum of counts, the least that it can be if some are unknown."""
    known = [count for count in counts if count is not None]
    at_least = "at least " if len(known) < len(counts) else ""
    return f"{at_least}{sum(known):,}" if known else ""


def _extra_values(title: str, decisions: Iterable[DecisionRecord]) -> list[float]:
    return [value for value in map(_EXTRA_COLUMNS[title], decisions) if value is not None]


def _format_range(values: Sequence[float]) -> str:
    """Return the lowest and the highest value, once if they are the same."""
    texts = [f"{value + 0.0:,g}" for value in sorted(values)]  # no "-0"
    return " to ".join(dict.fromkeys([texts[0], texts[-1]])) if texts else ""
