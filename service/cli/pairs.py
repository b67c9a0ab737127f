"""The two builds that ``ctxb diff`` compares."""

import json
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import ValidationError

from service.app import open_builder
from service.cli.diff import DiffOptions
from service.cli.ending import until_told
from service.cli.request import read_bytes, read_request, set_options
from service.config.settings import Settings
from service.errors import InvalidRequestError
from service.wire.request import decode
from service.wire.response import BuildResponse, BuildSuccess

PAIR: Final = 2


def two_files(asked: DiffOptions) -> tuple[BuildSuccess, BuildSuccess]:
    """Read the two responses that are named.

    Raises:
        typer.BadParameter: There are not two, or one can't be read.
        InvalidRequestError: One holds no context.
    """
    if any(_wishes(asked).values()):
        raise typer.BadParameter("--strategy, --model and budgets go with --request")
    if asked.files is None or len(asked.files) != PAIR:
        raise typer.BadParameter("two responses are needed, or --request")
    if asked.files[0] == asked.files[1] == Path("-"):
        raise typer.BadParameter("only one of them can be stdin")
    a, b = map(_response, asked.files)
    return a, b


def _response(path: Path) -> BuildSuccess:
    """Read a response; raises `InvalidRequestError` where the file holds no context."""
    try:
        content = BuildResponse.model_validate_json(read_bytes(path)).content
    except ValidationError as error:
        raise InvalidRequestError(f"{path}: no response: {error.errors()[0]['msg']}") from error
    if content.status == "error":
        raise InvalidRequestError(f"{path}: an error, no context: {content.error.detail}")
    return content


def two_ways(settings: Settings, asked: DiffOptions) -> tuple[BuildSuccess, BuildSuccess]:
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
) -> tuple[BuildSuccess, BuildSuccess]:
    """Build a request twice at one moment, each time with other options."""
    async with open_builder(settings) as builder:
        moment = builder.clock()
        contents = []
        for side in sides:
            set_options(request, {**side, "explain": True})
            decoded = decode(json.dumps(request).encode(), received_at=moment)
            contents.append((await builder.built(decoded)).content)
    return contents[0], contents[1]
