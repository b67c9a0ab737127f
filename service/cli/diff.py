"""``ctxb diff``: compare two builds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter, ValidationError

from service.app import open_builder
from service.audit.compare import (
    Change,
    Comparison,
    HistoryChange,
    MessageChange,
    NameChanges,
    compare,
    outcome_of,
)
from service.audit.report_store import find_report
from service.audit.reports import BUILD_ID, BuildReport, ContentReport, make_report, report_content
from service.cli.build_output import reason_text, styled_decision
from service.cli.exits import Exit, run_until_stopped
from service.cli.models import complete_model
from service.cli.options import Json
from service.cli.output import console, counted, print_text, printable, table
from service.cli.previews import Texts, find_texts, format_messages, texts_of
from service.cli.request import complete_strategy, read_bytes, read_request
from service.cli.start import run_on_bus, start
from service.config.settings import Settings
from service.connect import check_ready
from service.errors import InvalidRequestError, NotFoundError
from service.wire.request import BuildRequest, decode_again, set_options
from service.wire.response import BuildResponse
from service.wire.validation import invalid, is_build

TWICE: Final = "Give the option twice to compare two values; once applies to both builds."
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

    A file has a response of a worker or of `ctxb build --json`. If the response
    was made with --explain, the comparison says why a message of history is
    missing. For build ids, the command reads reports from the configured bus.
    The exit code is 0 if both builds send the same messages and tools, 7 if
    they differ, and 8 if a build has no report.
    """
    settings = start(ctx.obj)
    given: dict[str, Sequence[Any] | None] = {
        "strategy": strategy,
        "max_tokens": max_tokens,
        "memory_tokens": memory_tokens,
        "model": model,
    }
    options = {name: values for name, values in given.items() if values}
    texts: dict[str, str] = {}
    if request is None:
        a, b = read_pair(settings, builds or (), options)
    elif builds:
        raise typer.BadParameter("either two builds or --request")
    else:
        a, b, texts = run_until_stopped(build_pair(settings, request, options))
    comparison = compare(a, b)
    if as_json:
        typer.echo(TypeAdapter(Comparison).dump_json(comparison, indent=2, exclude={"content"}))
    else:
        for report in (a, b):
            if isinstance(report, BuildReport):
                texts |= _reported_texts(settings, report, comparison)
        print_comparison(comparison, texts, text=text)
    raise typer.Exit(Exit.OK if comparison.identical else Exit.DIFFERENT)


def read_pair(
    settings: Settings, builds: Sequence[Path], options: Mapping[str, Sequence[Any]]
) -> tuple[ContentReport, ContentReport]:
    """Read two builds: responses from files, or reports from the bus.

    Raises `InvalidRequestError` for a file without a context, `NotFoundError` without a report.
    """
    if options:
        raise typer.BadParameter("--strategy, --model and budgets go with --request")
    if len(builds) != PAIR:
        raise typer.BadParameter("two builds or responses are needed, or --request")
    if builds[0] == builds[1] == Path("-"):
        raise typer.BadParameter("only one of them can be stdin")
    return _read_build(settings, builds[0]), _read_build(settings, builds[1])


def _read_build(settings: Settings, path: Path) -> ContentReport:
    if BUILD_ID.fullmatch(str(path)) and not path.exists():
        report = run_on_bus(settings, lambda bus: find_report(bus.reports, str(path)))
        if report is None:
            raise NotFoundError(
                f"the bus has no report of {path}: it has expired, or no worker built it"
            )
        return report
    try:
        content = BuildResponse.model_validate_json(read_bytes(path)).content
    except ValidationError as error:
        first = invalid(error).problems[0]
        is_request = any(is_build(detail["input"]) for detail in error.errors())
        fix = "; pass a request with --request" if is_request else ""
        problem = f"{first.pointer} {first.detail}".lstrip()
        raise InvalidRequestError(f"{path}: no response: {problem}{fix}") from error
    if content.status == "error":
        raise InvalidRequestError(f"{path}: an error, no context: {content.error.detail}")
    return report_content(content, full=True)


async def build_pair(
    settings: Settings, path: Path, options: Mapping[str, Sequence[Any]]
) -> tuple[ContentReport, ContentReport, dict[str, str]]:
    """Build a request twice at the same moment: with each option's first value, and its last.

    Returns the reports, and the texts of the history that was read; raises `ContextBuilderError`.
    """
    if max(map(len, options.values()), default=0) != PAIR:
        raise typer.BadParameter("--strategy, --model or a budget is needed twice, none more often")
    request = read_request(path)
    await check_ready(settings)
    async with open_builder(settings) as builder:
        moment = builder.clock()
        reports = []
        texts: dict[str, str] = {}
        for index in (0, -1):
            side = {name: values[index] for name, values in options.items()}
            set_options(request, {**side, "explain": True})
            decoded = decode_again(request, received_at=moment)
            built = await builder.build_or_raise(decoded)
            reports.append(make_report(built, at=moment, content="full", settings={}))
            texts |= texts_of((*built.gathered.history.messages, *built.gathered.run))
    return reports[0], reports[1], texts


def _reported_texts(settings: Settings, report: BuildReport, comparison: Comparison) -> Texts:
    """Return the words of messages that a table shows, from the store or the build's request."""
    body = report.request.body
    past = None if body is None else BuildRequest.model_validate(body).options.past
    return find_texts(settings, report.request.owner_key, _ids(comparison.history), past)


def print_comparison(comparison: Comparison, texts: Texts, *, text: bool) -> None:
    """Print what differs; with ``text`` the lines of the messages as well.

    ``texts`` are of messages of history, by their ids: their first words are shown.
    """
    if comparison.identical:
        print_text(f"identical: both send the same messages and tools ({comparison.b})")
    for change in comparison.settings:
        print_text(f"{change.name}: {change.a} in A, {change.b} in B")
    _print_tokens(comparison.tokens)
    _print_tools(comparison.tools)
    if not comparison.explained and not comparison.identical:
        print_text("history: not compared, since a build lists no decisions; build with --explain")
    if comparison.history:
        _print_history(comparison.history, texts)
    for message in comparison.messages:
        _print_message(message, text=text)
    for side, warnings in (("A", comparison.warnings_a), ("B", comparison.warnings_b)):
        for warning in warnings:
            print_text(f"warning in {side} only: {warning.code}: {warning.detail}")


def _print_tools(names: NameChanges) -> None:
    for change, changed in asdict(names).items():
        for name in changed:
            print_text(f"tool {change}: {name}")


def _print_tokens(changes: Iterable[Change]) -> None:
    columns, rows = ("A", "B", "Change"), []
    for change in changes:
        a, b = (0 if isinstance(value, str | None) else value for value in (change.a, change.b))
        rows.append((change.name, change.a, change.b, f"{b - a:+,}" if a != b else ""))
    console().print(table("Tokens", *columns, rows=rows, numbers=columns))


def _neighbours(changes: Iterable[HistoryChange]) -> Iterator[list[HistoryChange]]:
    """Group adjacent changes that are alike."""
    groups = groupby(changes, key=lambda change: (outcome_of(change.a), outcome_of(change.b)))
    return (list(alike) for _, alike in groups)


def _ids(changes: Iterable[HistoryChange]) -> list[str]:
    return [change.message_id for change in changes]


def _print_history(changes: Iterable[HistoryChange], texts: Texts) -> None:
    """Print the messages with different decisions, adjacent ones that are alike in one row."""
    rows = table("Messages", "A", "B", "Why", title="History")
    rows.columns[0].max_width = 24
    for group in _neighbours(changes):
        sides = {"A": group[0].a, "B": group[0].b}
        reasons = [
            f"{name}: {reason_text(side)}"
            for name, side in sides.items()
            if side and side.decision != "kept"
        ]
        rows.add_row(
            format_messages(_ids(group), texts),
            *(styled_decision(side.decision if side else "none") for side in sides.values()),
            printable("; ".join(reasons)),
        )
    console().print(rows)


def _print_message(change: MessageChange, *, text: bool) -> None:
    name = f"[{change.block}]" if change.block else change.role
    indexes = {"A": change.a, "B": change.b}.items()
    numbers = ", ".join(f"{index + 1} in {side}" for side, index in indexes if index is not None)
    if change.lines is None:
        print_text(f"message {numbers}, {name}: differs; the reports have no texts")
        return
    removed = counted(change.removed or 0, "line")
    print_text(f"message {numbers}, {name}: {removed} of A, {change.added} of B")
    if text:
        # not wrapped, so that a program that reads the output gets the text itself
        typer.echo("\n".join(printable(line) for line in change.lines))
