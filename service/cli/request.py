"""``ctxb build`` and ``ctxb send``: a request made of options, and built here or by a worker."""

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from formatters.providers.formats import Format
from service.app import open_builder
from service.budget.strategies import STRATEGIES
from service.cli.build_output import (
    decided_ids,
    print_context,
    print_explanation,
    print_response,
    print_summary,
)
from service.cli.exits import Exit, run_until_stopped
from service.cli.history_files import read_history
from service.cli.models import complete_model
from service.cli.options import Json, owner_option, takes
from service.cli.previews import find_texts
from service.cli.start import has_persistent_store, start
from service.config.settings import Settings
from service.connect import check_ready, connect_client, open_tracer, require_shared_bus
from service.errors import InvalidRequestError
from service.wire.payload import read_json
from service.wire.request import BuildRequest, ContextOptions, set_options
from service.wire.response import BuildResponse, BuildSuccess


def complete_strategy(incomplete: str) -> list[str]:
    """Return the names of the built-in strategies that begin with a text."""
    return [name for name in STRATEGIES if name.startswith(incomplete)]


RequestOwner = Annotated[str | None, owner_option("The owner whose history and profile are used.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The options that make a request."""

    owner: RequestOwner = None
    text: Annotated[
        str | None, typer.Option("--input", "-i", metavar="TEXT", help="The message of the human.")
    ] = None
    request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file with a request in JSON, in place of --input; - is stdin."
        ),
    ] = None
    conversation: Annotated[
        str | None, typer.Option(metavar="ID", help="Use the history of this conversation only.")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(autocompletion=complete_model, help="The model that will read the context."),
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the context and the answer together.")
    ] = None
    reserve_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens to keep free for the answer.")
    ] = None
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_strategy,
            help="The strategy that selects the history that fits.",
        ),
    ] = None
    layout: Annotated[
        Literal["tagged", "chat"] | None,
        typer.Option(help="tagged: history is a block; chat: history is messages."),
    ] = None
    form: Annotated[
        Format | None,
        typer.Option("--format", help="With --json: also the body of this provider's API call."),
    ] = None
    memory_limit: Annotated[int | None, typer.Option(min=0, help="Maximum rows of history.")] = None
    memory_tokens: Annotated[
        int | None, typer.Option(min=64, help="Maximum tokens of history, in all blocks together.")
    ] = None
    timezone_offset: Annotated[
        int | None,
        typer.Option(metavar="MINUTES", help="The client's time zone, in minutes west of UTC."),
    ] = None
    profile: Annotated[
        str | None, typer.Option(metavar="TEXT", help="About the human, for [FRIENDS_INFO].")
    ] = None
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with history, used in place of the store's: JSONL or OpenAI.",
        ),
    ] = None
    recall_tool: Annotated[
        bool, typer.Option("--recall-tool", help="Offer the model the tool recall.")
    ] = False
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the tokens of each block, and every decision.")
    ] = False


@takes(RequestOptions)
def build(ctx: typer.Context, *, options: RequestOptions, as_json: Json = False) -> None:
    """Build one context here, without a bus, and print its messages.

    ctxb build --owner ana --input "Where were we?" --explain
    ctxb build --owner ana --input "Hi" --history chat.jsonl --max-tokens 4000
    ctxb build --request request.json --strategy middle_out --json

    History and profile come from the configured store; the command writes
    nothing to the store. With the store memory://, the history is empty, and a
    note on stderr says so.
    """
    settings = start(ctx.obj)
    request = make_request(options, as_json=as_json)

    async def built() -> BuildResponse:
        await check_ready(settings)
        async with open_builder(settings) as builder:
            return await builder.handle_build_request(request)

    response = run_until_stopped(built())
    show = partial(_explain, settings, request) if options.explain else print_context
    code = print_response(response, as_json=as_json, show=show)
    if code is not Exit.OK or has_persistent_store(settings):
        raise typer.Exit(code)
    if BuildRequest.model_validate(request).options.past is None:
        typer.echo(
            "note: no stored history was read, since the store is this command's own memory; set"
            " CTXB_STORE__URL or store.url as the workers have it",
            err=True,
        )
    raise typer.Exit(code)


Via = Annotated[
    Literal["stream", "channel"],
    typer.Option(help="stream: waits for a worker; channel: is lost without one."),
]
Timeout = Annotated[
    float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for the answer.")
]


@takes(RequestOptions)
def send(
    ctx: typer.Context,
    *,
    options: RequestOptions,
    via: Via = "stream",
    timeout: Timeout = 15.0,
    as_json: Json = False,
) -> None:
    """Send a request over the bus, wait for a worker's answer, and print a summary of it.

    ctxb send --owner ana --input "Hello"
    ctxb send --owner ana --input "Hello" --via channel --timeout 2 --json
    ctxb send --request request.json --explain

    The command prints the time and the tokens of the answer, with --explain
    also the decisions. --json prints the whole answer. Use it to test a
    deployment: the exit code is 4 if no worker answers, 5 if the bus can't be
    reached, and 3 if no bus is configured.
    """
    settings = require_shared_bus(start(ctx.obj))
    request = make_request(options, as_json=as_json)

    async def sent() -> tuple[BuildResponse, float]:
        async with (
            open_tracer(settings) as tracer,
            connect_client(settings, tracer=tracer) as client,
        ):
            before = time.perf_counter()
            response = await client.send(request, timeout_seconds=timeout, via=via)
            return response, time.perf_counter() - before

    response, seconds = asyncio.run(sent())
    if not as_json:
        typer.echo(f"{response.content.status} in {seconds * 1000:.0f} ms: {response.id}")
    show = partial(_explain, settings, request) if options.explain else print_summary
    raise typer.Exit(print_response(response, as_json=as_json, show=show))


def make_request(options: RequestOptions, *, as_json: bool = True) -> dict[str, Any]:
    """Return the request that the options describe, as it is sent.

    Raises:
        typer.BadParameter: The options contradict each other.
        InvalidRequestError: A file has no request, or no history, in it.
    """
    if (options.request is None) == (options.text is None):
        raise typer.BadParameter("one of --input and --request is needed")
    if options.form is not None and not as_json:
        raise typer.BadParameter("--format goes with --json only")
    content: dict[str, Any] = {}
    if options.timezone_offset is not None:
        content["timezone_offset"] = options.timezone_offset
    if options.profile is not None:
        content["user_profile"] = {"prompt_overrides": {"friends_profile": options.profile}}
    if options.request is None:
        if options.owner is None:
            raise typer.BadParameter("--owner is needed")
        request: dict[str, Any] = {"content": {"current_input": options.text, **content}}
    elif content:
        raise typer.BadParameter("--profile and --timezone-offset go with --input only")
    else:
        request = read_request(options.request)
    names = {"owner_key": options.owner, "conversation_id": options.conversation}
    request.update({name: value for name, value in names.items() if value is not None})
    set_options(request, _context_options(options))
    return request


def _explain(settings: Settings, request: dict[str, Any], content: BuildSuccess) -> None:
    """Print the explanation of a build, with the words of its rows."""
    valid, ids = BuildRequest.model_validate(request), decided_ids(content.decisions)
    texts = find_texts(settings, valid.owner_key, ids, valid.options.past)
    print_explanation(content, texts)


def read_request(path: Path) -> dict[str, Any]:
    """Read a request of any size from a file: where it goes, its limit is checked.

    Raises as `read_bytes` does, and `InvalidRequestError` for what is no JSON object.
    """
    data = read_bytes(path)
    try:
        return read_json(data, max_bytes=len(data))
    except InvalidRequestError as error:
        name = "stdin" if str(path) == "-" else path
        raise InvalidRequestError(f"{name}: {error.detail}", error.problems) from error


def read_bytes(path: Path) -> bytes:
    """Read a file, or stdin for ``-``; raises `typer.BadParameter` if that fails."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error


def _context_options(options: RequestOptions) -> dict[str, Any]:
    """Return the given options of the context by their names on the wire."""
    fields = ContextOptions.model_fields
    named = {name: value for name, value in asdict(options).items() if name in fields}
    switches = {"explain": options.explain, "recall_tool": options.recall_tool}
    named |= {"format": options.form, **{name: on or None for name, on in switches.items()}}
    given = {name: value for name, value in named.items() if value is not None}
    if options.history is not None:
        history = read_history(read_bytes(options.history))
        history.check(str(options.history))
        given["past"] = history.past
    return given
