"""``ctxb schema``: the wire contract as documents, for code in other languages."""

from typing import Annotated

import typer

schema = typer.Typer(no_args_is_help=True, help="Print the wire contract as documents.")

Message = Annotated[
    str | None,
    typer.Argument(metavar="[MESSAGE]", help="request, response, …; else all, by their names."),
]


@schema.command()
def asyncapi() -> None:
    """Print the AsyncAPI 3 document: topics, messages, requests with their replies.

    ctxb schema asyncapi > asyncapi.json
    """
    from scripts.wire_documents import as_text
    from service.wire.documents import document

    typer.echo(as_text(document()), nl=False)


@schema.command(name="json")
def json_schema(message: Message = None) -> None:
    """Print the JSON Schema of a message, or an object with those of all.

    ctxb schema json request
    ctxb schema json | jq keys
    """
    from scripts.wire_documents import as_text
    from service.cli.exits import Exit, tell
    from service.wire.documents import schemas

    found = schemas()
    if message and message not in found:
        tell("unknown", f"{message!r} is no message; there are {', '.join(found)}")
        raise typer.Exit(Exit.FAILED)
    typer.echo(as_text(found[message] if message else found), nl=False)


@schema.command()
def errors() -> None:
    """Print every error code: what it means, when it comes, and what to do.

    ctxb schema errors
    ctxb schema errors | jq '.errors[] | select(.retryable) | .code'
    """
    from scripts.wire_documents import as_text
    from service.wire.documents import registry

    typer.echo(as_text(registry()), nl=False)
