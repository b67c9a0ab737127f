"""``ctxb recall``: fetch earlier messages from the store, as a model does by its tool."""

import re
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final

import typer

from service.app import open_builder
from service.cli.build_output import print_failure, print_warnings
from service.cli.exits import run_until_stopped
from service.cli.models import complete_model
from service.cli.options import Conversation, Json, Owner, takes
from service.cli.output import note_if_none, printable
from service.cli.start import require_existing_store, start
from service.config.settings import Settings
from service.connect import open_bus, require_shared_bus
from service.errors import InvalidRequestError
from service.wire.recall import RecallRequest, RecallResponse
from service.wire.validation import RECALL_MODES

#: The line range of an option: ``41-80``.
LINES: Final = "FIRST-LAST"

#: The options that belong to one way of recalling, by their names on the wire.
_ONLY_WITH: Final = {
    "before": "around",
    "after": "around",
    "page": "query",
    "with_ids": "query",
    "older_than": "grep",
}

Before = Annotated[int | None, typer.Option(help="With --around: number of messages before it.")]
After = Annotated[int | None, typer.Option(help="With --around: number of messages after it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallOptions:
    """The options that make a recall, most of them under their names on the wire."""

    owner: Owner
    conversation: Conversation = None
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            "-q",
            metavar="TEXT",
            help="Messages about this subject: a question or words.",
        ),
    ] = None
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="ID", help="The message with this id or short id; may be repeated."
        ),
    ] = None
    around: Annotated[
        str | None,
        typer.Option(metavar="ID", help="This message, with messages before and after it."),
    ] = None
    grep: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Messages that contain this text.")
    ] = None
    before: Before = None
    after: After = None
    lines: Annotated[
        str | None,
        typer.Option(metavar=LINES, help="With one --id: only these lines of the message."),
    ] = None
    page: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --query: the page of results, given the same other options."
        ),
    ] = None
    older_than: Annotated[
        str | None,
        typer.Option(metavar="ID", help="With --grep: search only messages older than this one."),
    ] = None
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens of the answer.")] = None
    exclude_build: Annotated[
        str | None,
        typer.Option(
            metavar="BUILD", help="Leave out messages that this build showed; needs a bus."
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(autocompletion=complete_model, help="The model that will read the answer."),
    ] = None
    with_ids: Annotated[bool, typer.Option("--with-ids", help="With --query: also print ids.")] = (
        False
    )


@takes(RecallOptions)
def recall(ctx: typer.Context, *, options: RecallOptions, as_json: Json = False) -> None:
    """Print earlier messages that a context left out, found by words, ids or position.

    ctxb recall --owner ana --query "Where is the key?"
    ctxb recall --owner ana --id m23 --id m24
    ctxb recall --owner ana --around m23 --before 5 --after 5
    ctxb recall --owner ana --grep 4471

    The command reads the configured store, which must not be memory://. It
    prints the same text that a model gets from the tool `recall`. Notes at the
    end of the text say how to get more.
    """
    settings = require_existing_store(start(ctx.obj))
    read = {"lines": _read_lines(options.lines), "with_ids": options.with_ids or None}
    given = asdict(options) | read
    raw = {"owner_key": given.pop("owner"), "conversation_id": given.pop("conversation")}
    content = {name: value for name, value in given.items() if value not in (None, [])}
    if len(content.keys() & RECALL_MODES) != 1:
        raise typer.BadParameter("exactly one of --query, --id, --around and --grep is needed")
    for name, mode in _ONLY_WITH.items():
        if name in content and mode not in content:
            option = name.replace("_", "-")
            raise typer.BadParameter(f"--{option} applies with --{mode} only; leave it out")
    try:
        request = RecallRequest.model_validate({**raw, "content": content})
    except InvalidRequestError as error:
        raise typer.BadParameter(_name_options(error.detail)) from error
    response = run_until_stopped(_recalled(settings, request))
    answer = response.content
    if as_json:
        typer.echo(response.model_dump_json(indent=2))
    if answer.status == "error":
        raise typer.Exit(print_failure(answer.error, _name_options))
    if not as_json:
        typer.echo(printable(answer.text))
        print_warnings(answer.warnings, _name_options)


async def _recalled(settings: Settings, request: RecallRequest) -> RecallResponse:
    async with AsyncExitStack() as stack:
        builder = await stack.enter_async_context(open_builder(settings))
        if request.content.exclude_build:
            connected = await stack.enter_async_context(open_bus(require_shared_bus(settings)))
            builder = replace(builder, reports=connected.bus.reports)
        response = await builder.recall(request)
        if response.content.status == "success" and not response.content.messages:
            owner, conversation = request.owner_key, request.conversation_id
            note_if_none((await builder.history.recent(owner, conversation, max_rows=1)).rows)
        return response


def _name_options(text: str) -> str:
    """Replace pointers into the request by the options that they mean."""

    def option(pointer: re.Match[str]) -> str:
        return "--id" if pointer[1] == "ids" else f"--{pointer[1].replace('_', '-')}"

    return re.sub(r"/content/(\w+)(?:/\d+)*", option, text)


def _read_lines(text: str | None) -> list[int] | None:
    """Read a range of lines; raises `typer.BadParameter`."""
    if text is None:
        return None
    numbers: list[Any] = text.split("-")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise typer.BadParameter(f"{text!r} is no range of lines; {LINES} is meant, such as 41-80")
    return [int(number) for number in numbers]
