"""``ctxb diff``: two builds side by side."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from service.cli.exits import Exit
from service.cli.options import Json, takes
from service.cli.request import read_bytes, read_request, set_options
from service.config.settings import Settings
from service.errors import InvalidRequestError
from service.result import BuildSuccess

TWICE: Final = "Give it twice to compare two, once to use it for both."


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """What the command line says about the builds to compare."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="A.json B.json", help="Two responses; - is stdin."),
    ] = None
    request: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A request to build twice; - is stdin."),
    ] = None
    strategy: Annotated[list[str] | None, typer.Option(metavar="NAME", help=TWICE)] = None
    max_tokens: Annotated[list[int] | None, typer.Option(help=TWICE)] = None
    memory_tokens: Annotated[list[int] | None, typer.Option(help=TWICE)] = None
    model: Annotated[list[str] | None, typer.Option(help=TWICE)] = None
    text: Annotated[bool, typer.Option("--text", help="Show the lines that differ.")] = False


@takes(DiffOptions)
def diff(ctx: typer.Context, *, asked: DiffOptions, as_json: Json = False) -> None:
    """Compare two builds, or one request built in two ways.

    ctxb diff before.json after.json
    ctxb diff --request request.json --strategy oldest_first --strategy importance
    ctxb diff --request request.json --max-tokens 8000 --max-tokens 4000 --text

    Responses are those of `ctxb build --json` or of a worker; with --explain
    they tell why a message of history is missing. The exit code is 0 where
    both send the same messages and tools, else 7.
    """
    from pydantic import TypeAdapter

    from service.cli.comparisons import print_comparison
    from service.cli.start import start
    from service.compare import Comparison, compare

    settings = start(ctx.obj)
    a, b = _two_files(asked) if asked.request is None else _two_ways(settings, asked)
    comparison = compare(a, b)
    if as_json:
        typer.echo(TypeAdapter(Comparison).dump_json(comparison, indent=2))
    else:
        print_comparison(comparison, text=asked.text)
    raise typer.Exit(Exit.OK if comparison.identical else Exit.DIFFERENT)


def _two_files(asked: DiffOptions) -> tuple[BuildSuccess, BuildSuccess]:
    if any(_wishes(asked).values()):
        raise typer.BadParameter("--strategy, --model and budgets go with --request")
    if asked.files is None or len(asked.files) != len("AB"):
        raise typer.BadParameter("two responses are needed, or --request")
    if asked.files[0] == asked.files[1] == Path("-"):
        raise typer.BadParameter("only one of them can be stdin")
    a, b = map(_response, asked.files)
    return a, b


def _response(path: Path) -> BuildSuccess:
    """Read a response; raises `InvalidRequestError` where the file holds no context."""
    from pydantic import ValidationError

    from service.wire import BuildResponse

    try:
        content = BuildResponse.model_validate_json(read_bytes(path)).content
    except ValidationError as error:
        raise InvalidRequestError(f"{path}: no response: {error.errors()[0]['msg']}") from error
    if content.status == "error":
        raise InvalidRequestError(f"{path}: an error, no context: {content.error.detail}")
    return content


def _two_ways(settings: Settings, asked: DiffOptions) -> tuple[BuildSuccess, BuildSuccess]:
    wishes = _wishes(asked)
    if asked.request is None or asked.files:
        raise typer.BadParameter("either two responses or --request")
    if any(len(values) > len("AB") for values in wishes.values()):
        raise typer.BadParameter("an option is given twice at most")
    if not any(len(values) == len("AB") for values in wishes.values()):
        raise typer.BadParameter("one of --strategy, --model and budgets is needed twice")
    request = read_request(asked.request)
    sides = [{name: given[place] for name, given in wishes.items() if given} for place in (0, -1)]
    return asyncio.run(_built(settings, request, sides))


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
    from service.app import open_builder
    from service.wire import decode

    async with open_builder(settings) as builder:
        moment = builder.clock()
        contents = []
        for side in sides:
            set_options(request, {**side, "explain": True})
            decoded = decode(json.dumps(request).encode(), received_at=moment)
            contents.append((await builder.built(decoded)).content)
    return contents[0], contents[1]
