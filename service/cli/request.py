"""The request that `build` and `send` are about: its options, and what is made of them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from service.cli.completion import models, strategies
from service.cli.options import check_owner, takes

Layout = Literal["tagged", "chat"]
Form = Literal["openai", "openai_responses", "anthropic", "gemini"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What the command line says about a request."""

    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            "-o",
            metavar="KEY",
            callback=check_owner,
            help="Whose history and profile are used.",
        ),
    ] = None
    text: Annotated[
        str | None, typer.Option("--input", "-i", metavar="TEXT", help="What the human says.")
    ] = None
    request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A request in JSON in place of --input; - reads it from stdin.",
        ),
    ] = None
    conversation: Annotated[
        str | None, typer.Option(metavar="ID", help="Use the history of this conversation only.")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(autocompletion=models, help="The model that will read the context."),
    ] = None
    max_tokens: Annotated[int | None, typer.Option(help="The whole window, in tokens.")] = None
    reserve_tokens: Annotated[
        int | None, typer.Option(help="Kept free for the answer, in tokens.")
    ] = None
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", autocompletion=strategies, help="What goes when history does not fit."
        ),
    ] = None
    layout: Annotated[
        Layout | None,
        typer.Option(help="History as a block, or as native messages.", show_choices=True),
    ] = None
    form: Annotated[
        Form | None,
        typer.Option("--format", help="Whose call to write besides.", show_choices=True),
    ] = None
    memory_limit: Annotated[int | None, typer.Option(help="Rows of history shown at most.")] = None
    memory_tokens: Annotated[
        int | None, typer.Option(help="Tokens for all that holds history.")
    ] = None
    timezone_offset: Annotated[
        int | None,
        typer.Option(metavar="MINUTES", help="The client's zone, in minutes west of UTC."),
    ] = None
    profile: Annotated[
        str | None, typer.Option(metavar="TEXT", help="About the human, for [FRIENDS_INFO].")
    ] = None
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="History in place of the store's: JSONL rows or OpenAI messages.",
        ),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where the tokens went, and every decision.")
    ] = False


takes_request = takes(RequestOptions)


def make_request(asked: RequestOptions) -> dict[str, Any]:
    """Return the request in the form of the wire.

    Raises:
        typer.BadParameter: The options contradict each other.
        InvalidRequestError: A file holds no request, or no history.
    """
    if asked.request is not None and asked.text is None:
        if asked.profile is not None or asked.timezone_offset is not None:
            raise typer.BadParameter("--profile and --timezone-offset go with --input only")
        request = read_request(asked.request)
    elif asked.request is None and asked.text is not None:
        request = _short(asked.text, asked)
    else:
        raise typer.BadParameter("one of --input and --request is needed")
    named = {"owner_key": asked.owner, "conversation_id": asked.conversation}
    request.update({key: value for key, value in named.items() if value is not None})
    set_options(request, _wishes(asked))
    return request


def read_request(path: Path) -> dict[str, Any]:
    """Return the request that a file holds, or stdin for ``-``.

    Raises:
        typer.BadParameter: It can't be read.
        InvalidRequestError: It holds no JSON object.
    """
    from service.wire.payload import MAX_BYTES, read_json

    return read_json(read_bytes(path), max_bytes=MAX_BYTES)


def set_options(request: dict[str, Any], wishes: Mapping[str, object]) -> None:
    """Write options of the context into a request; those that are None stay as they are."""
    from service.wire.request import set_options as write_options

    write_options(request, {key: value for key, value in wishes.items() if value is not None})


def read_bytes(path: Path) -> bytes:
    """Return what a file holds, or stdin for ``-``; raises `typer.BadParameter`."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error


def _short(text: str, asked: RequestOptions) -> dict[str, Any]:
    if asked.owner is None:
        raise typer.BadParameter("--owner is needed")
    content: dict[str, Any] = {"current_input": text}
    if asked.timezone_offset is not None:
        content["timezone_offset"] = asked.timezone_offset
    if asked.profile is not None:
        content["user_profile"] = {"prompt_overrides": {"friends_profile": asked.profile}}
    return {"content": content}


def _wishes(asked: RequestOptions) -> dict[str, Any]:
    return {
        "model": asked.model,
        "max_tokens": asked.max_tokens,
        "reserve_tokens": asked.reserve_tokens,
        "strategy": asked.strategy,
        "memory_limit": asked.memory_limit,
        "memory_tokens": asked.memory_tokens,
        "layout": asked.layout,
        "format": asked.form,
        "past": _past(asked),
        "explain": asked.explain or None,
    }


def _past(asked: RequestOptions) -> list[dict[str, Any]] | None:
    if asked.history is None:
        return None
    from service.cli.history_files import read_history

    found = read_history(read_bytes(asked.history))
    found.check(str(asked.history))
    found.tell_left_out()
    return found.rows
