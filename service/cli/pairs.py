"""The two builds that ``ctxb diff`` compares."""

import json
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import ValidationError

from service.app import open_builder, open_bus
from service.audit.reports import BuildReports, ContentReport, report_content
from service.cli.diff import DiffOptions
from service.cli.ending import until_told
from service.cli.request import read_bytes, read_request, set_options
from service.cli.start import shared_bus
from service.config.settings import Settings
from service.connect import now
from service.errors import InvalidRequestError
from service.http.builds import BUILD_ID
from service.http.error_responses import NotFoundError
from service.wire.request import decode
from service.wire.response import BuildResponse, BuildSuccess

PAIR: Final = 2


def two_builds(settings: Settings, asked: DiffOptions) -> tuple[ContentReport, ContentReport]:
    """Read the two builds that are named, by id from the bus or from files with responses.

    Raises:
        typer.BadParameter: There are not two, or one can't be read.
        InvalidRequestError: A file holds no context.
        NotFoundError: The bus has no report of a build.
    """
    if any(_wishes(asked).values()):
        raise typer.BadParameter("--strategy, --model and budgets go with --request")
    if asked.files is None or len(asked.files) != PAIR:
        raise typer.BadParameter("two builds or responses are needed, or --request")
    if asked.files[0] == asked.files[1] == Path("-"):
        raise typer.BadParameter("only one of them can be stdin")
    a, b = (_read_build(settings, path) for path in asked.files)
    return a, b


def _read_build(settings: Settings, path: Path) -> ContentReport:
    if BUILD_ID.fullmatch(str(path)) and not path.exists():
        return until_told(_read_report(shared_bus(settings), str(path)))
    return report_content(_read_response(path), full=True)


async def _read_report(settings: Settings, build_id: str) -> ContentReport:
    async with open_bus(settings) as connected:
        report = await BuildReports(connected.bus.reports, settings, now).find(build_id)
    if report is None:
        raise NotFoundError(
            f"the bus has no report of {build_id}: it has expired, or no worker built it"
        )
    return report


def _read_response(path: Path) -> BuildSuccess:
    """Read a response; raises `InvalidRequestError` if the file holds no context."""
    try:
        content = BuildResponse.model_validate_json(read_bytes(path)).content
    except ValidationError as error:
        raise InvalidRequestError(f"{path}: no response: {error.errors()[0]['msg']}") from error
    if content.status == "error":
        raise InvalidRequestError(f"{path}: an error, no context: {content.error.detail}")
    return content


def two_ways(settings: Settings, asked: DiffOptions) -> tuple[ContentReport, ContentReport]:
    """Build the request that is named in the two ways that the options tell.

    Raises:
        typer.BadParameter: They don't tell two.
        ContextBuilderError: It can't be built.
    """
    wishes = _wishes(asked)
    if asked.request is None or asked.files:
        raise typer.BadParameter("either two responses or --request")
    if any(len(values) > PAIR for values in wishes.values()):
        raise typer.BadParameter("an option is given twice at most")
    if not any(len(values) == PAIR for values in wishes.values()):
        raise typer.BadParameter("one of --strategy, --model and budgets is needed twice")
    request = read_request(asked.request)
    sides = [{name: given[place] for name, given in wishes.items() if given} for place in (0, -1)]
    return until_told(_built(settings, request, sides))


def _wishes(asked: DiffOptions) -> dict[str, list[Any]]:
    return {
        "strategy": asked.strategy or [],
        "max_tokens": asked.max_tokens or [],
        "memory_tokens": asked.memory_tokens or [],
        "model": asked.model or [],
    }


async def _built(
    settings: Settings, request: dict[str, Any], sides: list[dict[str, Any]]
) -> tuple[ContentReport, ContentReport]:
    """Build a request twice at one moment, each time with other options."""
    async with open_builder(settings) as builder:
        moment = builder.clock()
        contents = []
        for side in sides:
            set_options(request, {**side, "explain": True})
            decoded = decode(json.dumps(request).encode(), received_at=moment)
            built = await builder.built(decoded)
            contents.append(report_content(built.content, full=True))
    return contents[0], contents[1]
