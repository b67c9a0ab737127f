"""``ctxb schema``: the wire contract as documents, for code in other languages."""

import json
from typing import Annotated

import typer

from service.cli.exits import CommandError
from service.wire.documents import asyncapi_document, error_registry, schemas

schema = typer.Typer(no_args_is_help=True)

MessageName = Annotated[
    str | None,
    typer.Argument(metavar="[MESSAGE]", help="request, response, …; default: all, by name."),
]


@schema.command()
def asyncapi() -> None:
    """Print the AsyncAPI 3 document: topics, messages, requests with their replies.

    ctxb schema asyncapi > asyncapi.json
    """
    _print(asyncapi_document())


@schema.command(name="json")
def json_schema(message: MessageName = None) -> None:
    """Print the JSON Schema of a message, or of all messages in one object.

    ctxb schema json request
    ctxb schema json | jq keys
    """
    by_name = schemas()
    if message and message not in by_name:
        raise CommandError(f"{message!r} is no message; there are {', '.join(by_name)}")
    _print(by_name[message] if message else by_name)


@schema.command()
def errors() -> None:
    """Print every error code: its meaning, its causes, and what to do about it.

    ctxb schema errors
    ctxb schema errors | jq '.errors[] | select(.retryable) | .code'
    """
    _print(error_registry())


def _print(described: object) -> None:
    # not by `service.cli.output`, which loads what tables need
    typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
