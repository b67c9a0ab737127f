"""Show people where two builds differ."""

from collections.abc import Iterable
from itertools import groupby

import typer
from rich.text import Text

from service.audit.compare import Change, Comparison, HistoryChange, MessageChange, NameChanges
from service.cli.tables import console, fate, named_ids, printable, say, table, why
from service.wire.response import DecisionRecord, WarningRecord


def print_comparison(comparison: Comparison, *, text: bool) -> None:
    """Print what differs; with ``text`` the lines of the messages as well."""
    if comparison.identical:
        say(f"identical: both send the same messages and tools ({comparison.b})")
    for change in comparison.settings:
        say(f"{change.name}: {change.a} in A, {change.b} in B")
    _print_tokens(comparison.tokens)
    _print_names("tool", comparison.tools)
    if not comparison.explained and not comparison.identical:
        say("history: not compared, since a build lists no decisions; build with --explain")
    if comparison.history:
        _print_history(comparison.history)
    for message in comparison.messages:
        _print_message(message, text=text)
    _print_warnings("A", comparison.warnings_a)
    _print_warnings("B", comparison.warnings_b)


def _print_names(what: str, names: NameChanges) -> None:
    """Print a line for each thing that was added, removed or changed."""
    for change, each in (
        ("added", names.added),
        ("removed", names.removed),
        ("changed", names.changed),
    ):
        for name in each:
            say(f"{what} {change}: {name}")


def _print_tokens(changes: Iterable[Change]) -> None:
    rows = table("Tokens", "A", "B", "Change", numbers=["A", "B", "Change"])
    for change in changes:
        a, b = (0 if isinstance(value, str | None) else value for value in (change.a, change.b))
        rows.add_row(
            printable(change.name),
            "-" if change.a is None else f"{a:,}",
            "-" if change.b is None else f"{b:,}",
            f"{b - a:+,}" if a != b else "",
        )
    console().print(rows)


def _print_history(changes: Iterable[HistoryChange]) -> None:
    """Print messages decided on otherwise, neighbours of one fate in one row."""
    rows = table("Messages", "A", "B", "Why", title="History")
    rows.columns[0].max_width = 24
    for _, alike in groupby(changes, key=lambda each: (_fate(each.a), _fate(each.b))):
        group = list(alike)
        first = group[0]
        rows.add_row(
            printable(named_ids([each.message_id for each in group])),
            _shown(first.a),
            _shown(first.b),
            printable("; ".join(_reasons(first))),
        )
    console().print(rows)


def _fate(decision: DecisionRecord | None) -> tuple[str, str] | None:
    return (decision.decision, decision.reason) if decision else None


def _shown(decision: DecisionRecord | None) -> Text | str:
    return fate(decision.decision) if decision else "not read"


def _reasons(change: HistoryChange) -> list[str]:
    """Return why it isn't whole, by the side on which it isn't; where it is, nothing is to say."""
    sides = (("A", change.a), ("B", change.b))
    return [f"{name}: {why(side)}" for name, side in sides if side and side.decision != "kept"]


def _print_message(change: MessageChange, *, text: bool) -> None:
    name = f"[{change.block}]" if change.block else change.role
    places = [f"{place + 1} in {side}" for side, place in _places(change)]
    if change.lines is None:
        say(f"message {', '.join(places)}, {name}: differs; the reports have no texts")
        return
    added = sum(line.startswith("+") for line in change.lines)
    removed = sum(line.startswith("-") for line in change.lines)
    say(f"message {', '.join(places)}, {name}: {removed} lines of A, {added} of B")
    if text:
        # not wrapped: what is piped on is the text itself
        typer.echo("\n".join(printable(line) for line in change.lines))


def _places(change: MessageChange) -> list[tuple[str, int]]:
    return [(side, at) for side, at in (("A", change.a), ("B", change.b)) if at is not None]


def _print_warnings(side: str, warnings: Iterable[WarningRecord]) -> None:
    for warning in warnings:
        say(f"warning in {side} only: {warning.code}: {warning.detail}")
