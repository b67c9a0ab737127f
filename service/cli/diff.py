"""``ctxb diff``: compare two builds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from service.app import open_builder, open_bus
from service.audit.compare import (
    Change,
    Comparison,
    HistoryChange,
    MessageChange,
    NameChanges,
    compare,
)
from service.audit.reports import (
    BUILD_ID,
    BuildReports,
    ContentReport,
    ReportNotFoundError,
    report_content,
)
from service.cli.exits import Exit, run_until_stopped
from service.cli.models import complete_model
from service.cli.options import Json
from service.cli.output import (
    console,
    format_ids,
    print_text,
    printable,
    reason_text,
    styled_decision,
    table,
)
from service.cli.request import complete_strategy, read_bytes, read_request
from service.cli.start import require_shared_bus, start
from service.config.settings import Settings
from service.connect import now
from service.errors import InvalidRequestError
from service.wire.request import decode, set_options
from service.wire.response import BuildResponse, BuildSuccess, DecisionRecord, WarningRecord

TWICE: Final = "Give it twice to compare two, once to use it for both."
PAIR: Final = 2


Builds = Annotated[
    list[Path] | None,
    typer.Argument(metavar="A B", help="Two build ids, or two files with responses; - is stdin."),
]
RequestFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A request to build twice; - is stdin.")
]
Strategies = Annotated[
    list[str] | None, typer.Option(metavar="NAME", autocompletion=complete_strategy, help=TWICE)
]
Models = Annotated[list[str] | None, typer.Option(autocompletion=complete_model, help=TWICE)]
Tokens = Annotated[list[int] | None, typer.Option(help=TWICE)]
ShowText = Annotated[bool, typer.Option("--text", help="Show the lines that differ.")]


def diff(
    ctx: typer.Context,
    builds: Builds = None,
    *,
    request: RequestFile = None,
    strategy: Strategies = None,
    max_tokens: Tokens = None,
    memory_tokens: Tokens = None,
    model: Models = None,
    text: ShowText = False,
    as_json: Json = False,
) -> None:
    """Compare two builds, or one request built in two ways.

    ctxb diff before.json after.json
    ctxb diff bld_5d4b8ca19cb01f1f52f2390e46b46de4 bld_91f0e4b2c3a45d6978f0a1b2c3d4e5f6
    ctxb diff --request request.json --strategy oldest_first --strategy importance
    ctxb diff --request request.json --max-tokens 8000 --max-tokens 4000 --text

    Responses are those of `ctxb build --json` or of a worker; with --explain
    they say why a message of history is missing. The reports of builds are
    read from the bus of the settings. The exit code is 0 if both send the
    same messages and tools, else 7, or 8 if a build has no report.
    """
    settings = start(ctx.obj)
    options: dict[str, Sequence[Any]] = {
        "strategy": strategy or (),
        "max_tokens": max_tokens or (),
        "memory_tokens": memory_tokens or (),
        "model": model or (),
    }
    if request is None:
        a, b = read_pair(settings, builds or (), options)
    elif builds:
        raise typer.BadParameter("either two builds or --request")
    else:
        a, b = build_pair(settings, request, options)
    comparison = compare(a, b)
    if as_json:
        typer.echo(TypeAdapter(Comparison).dump_json(comparison, indent=2))
    else:
        print_comparison(comparison, text=text)
    raise typer.Exit(Exit.OK if comparison.identical else Exit.DIFFERENT)


# --- the two builds --------------------------------------------------------------------------


def read_pair(
    settings: Settings, builds: Sequence[Path], options: Mapping[str, Sequence[Any]]
) -> tuple[ContentReport, ContentReport]:
    """Read two builds: responses from files, or reports from the bus.

    Raises:
        typer.BadParameter: There are not two, or a file can't be read.
        InvalidRequestError: A file has no context in it.
        ReportNotFoundError: A build has no report.
    """
    if any(options.values()):
        raise typer.BadParameter("--strategy, --model and budgets go with --request")
    if len(builds) != PAIR:
        raise typer.BadParameter("two builds or responses are needed, or --request")
    if builds[0] == builds[1] == Path("-"):
        raise typer.BadParameter("only one of them can be stdin")
    return _read_build(settings, builds[0]), _read_build(settings, builds[1])


def _read_build(settings: Settings, path: Path) -> ContentReport:
    if BUILD_ID.fullmatch(str(path)) and not path.exists():
        return run_until_stopped(_read_report(require_shared_bus(settings), str(path)))
    return report_content(_read_response(path), full=True)


async def _read_report(settings: Settings, build_id: str) -> ContentReport:
    async with open_bus(settings) as connected:
        report = await BuildReports(connected.bus.reports, settings, now).find(build_id)
    if report is None:
        raise ReportNotFoundError(
            f"the bus has no report of {build_id}: it has expired, or no worker built it"
        )
    return report


def _read_response(path: Path) -> BuildSuccess:
    try:
        content = BuildResponse.model_validate_json(read_bytes(path)).content
    except ValidationError as error:
        raise InvalidRequestError(f"{path}: no response: {error.errors()[0]['msg']}") from error
    if content.status == "error":
        raise InvalidRequestError(f"{path}: an error, no context: {content.error.detail}")
    return content


def build_pair(
    settings: Settings, path: Path, options: Mapping[str, Sequence[Any]]
) -> tuple[ContentReport, ContentReport]:
    """Build a request twice: with the first value of each option, and with the last.

    Raises:
        typer.BadParameter: No option has two values, or one has more.
        ContextBuilderError: The request can't be built.
    """
    if any(len(values) > PAIR for values in options.values()):
        raise typer.BadParameter("an option is given twice at most")
    if not any(len(values) == PAIR for values in options.values()):
        raise typer.BadParameter("one of --strategy, --model and budgets is needed twice")
    request = read_request(path)
    given = {name: values for name, values in options.items() if values}
    first = {name: values[0] for name, values in given.items()}
    last = {name: values[-1] for name, values in given.items()}
    return run_until_stopped(_build_pair(settings, request, first, last))


async def _build_pair(
    settings: Settings, request: dict[str, Any], *sides: Mapping[str, Any]
) -> tuple[ContentReport, ContentReport]:
    """Build a request with the options of each side, at the same moment."""
    async with open_builder(settings) as builder:
        moment = builder.clock()
        reports = []
        for side in sides:
            set_options(request, {**side, "explain": True})
            decoded = decode(json.dumps(request).encode(), received_at=moment)
            built = await builder.built(decoded)
            reports.append(report_content(built.content, full=True))
    return reports[0], reports[1]


# --- output ----------------------------------------------------------------------------------


def print_comparison(comparison: Comparison, *, text: bool) -> None:
    """Print what differs; with ``text`` the lines of the messages as well."""
    if comparison.identical:
        print_text(f"identical: both send the same messages and tools ({comparison.b})")
    for change in comparison.settings:
        print_text(f"{change.name}: {change.a} in A, {change.b} in B")
    _print_tokens(comparison.tokens)
    _print_names("tool", comparison.tools)
    if not comparison.explained and not comparison.identical:
        print_text("history: not compared, since a build lists no decisions; build with --explain")
    if comparison.history:
        _print_history(comparison.history)
    for message in comparison.messages:
        _print_message(message, text=text)
    _print_warnings("A", comparison.warnings_a)
    _print_warnings("B", comparison.warnings_b)


def _print_names(label: str, names: NameChanges) -> None:
    """Print a line per name that was added, removed or changed."""
    for change, changed in (
        ("added", names.added),
        ("removed", names.removed),
        ("changed", names.changed),
    ):
        for name in changed:
            print_text(f"{label} {change}: {name}")


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
    """Print the messages with different decisions, adjacent ones that are alike in one row."""
    rows = table("Messages", "A", "B", "Why", title="History")
    rows.columns[0].max_width = 24
    for _, alike in groupby(changes, key=lambda change: (_outcome(change.a), _outcome(change.b))):
        group = list(alike)
        first = group[0]
        rows.add_row(
            printable(format_ids([change.message_id for change in group])),
            _decision_cell(first.a),
            _decision_cell(first.b),
            printable("; ".join(_reasons(first))),
        )
    console().print(rows)


def _outcome(decision: DecisionRecord | None) -> tuple[str, str] | None:
    return (decision.decision, decision.reason) if decision else None


def _decision_cell(decision: DecisionRecord | None) -> Text | str:
    return styled_decision(decision.decision) if decision else "not read"


def _reasons(change: HistoryChange) -> list[str]:
    """Return the reasons of the sides on which the message is not kept."""
    sides = (("A", change.a), ("B", change.b))
    return [
        f"{name}: {reason_text(side)}" for name, side in sides if side and side.decision != "kept"
    ]


def _print_message(change: MessageChange, *, text: bool) -> None:
    name = f"[{change.block}]" if change.block else change.role
    indexes = (("A", change.a), ("B", change.b))
    numbers = ", ".join(f"{index + 1} in {side}" for side, index in indexes if index is not None)
    if change.lines is None:
        print_text(f"message {numbers}, {name}: differs; the reports have no texts")
        return
    added = sum(line.startswith("+") for line in change.lines)
    removed = sum(line.startswith("-") for line in change.lines)
    print_text(f"message {numbers}, {name}: {removed} lines of A, {added} of B")
    if text:
        # not wrapped, so that a program that reads the output gets the text itself
        typer.echo("\n".join(printable(line) for line in change.lines))


def _print_warnings(side: str, warnings: Iterable[WarningRecord]) -> None:
    for warning in warnings:
        print_text(f"warning in {side} only: {warning.code}: {warning.detail}")
