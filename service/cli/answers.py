"""Show a response, and tell the exit code that it means."""

from collections.abc import Callable

import typer

from service.cli.exits import BY_CODE, Exit, tell
from service.cli.tables import print_warnings, printable
from service.errors import Problem
from service.wire.response import BuildResponse, BuildSuccess, ErrorBody


def show_answer(
    response: BuildResponse, *, as_json: bool, show: Callable[[BuildSuccess], None]
) -> Exit:
    """Print a response as JSON, or a context by ``show``; an error goes to stderr as well."""
    content = response.content
    if as_json:
        typer.echo(response.model_dump_json(indent=2))
    if content.status == "error":
        return _failure(content.error)
    if not as_json:
        show(content)
        print_warnings(content)
    return Exit.OK


def _failure(error: ErrorBody) -> Exit:
    problems = [Problem(each["pointer"], printable(each["detail"])) for each in error.errors]
    tell(error.code, printable(error.detail), problems)
    return BY_CODE.get(error.code, Exit.FAILED)
