"""Exit codes, and the one place where an error becomes one."""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import typer
from typer.core import TyperGroup

from service.errors import (
    BusError,
    ConfigError,
    ContextBuilderError,
    Problem,
    PromptError,
    SchemaError,
    StoreError,
    ToolError,
)


class Exit(IntEnum):
    """What a command comes to."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 3
    NO_ANSWER = 4
    UNREACHABLE = 5
    BUDGET = 6
    DIFFERENT = 7
    NO_REPORT = 8
    INTERRUPTED = 130
    STOPPED = 143


EPILOG: Final = """\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 configuration invalid,
4 no answer in time, 5 bus or store can't be used, 6 budget impossible,
7 the builds differ, 8 a build has no report,
130 interrupted (Ctrl-C), 143 stopped (SIGTERM) before it was done, as a
worker is that could not answer all it had begun.

Results go to stdout, messages and logs to stderr.
NO_COLOR switches colours off.
"""

#: By the code on the wire; a client raises the errors of responses too.
BY_CODE: Final[Mapping[str, Exit]] = {
    "budget_exceeded": Exit.BUDGET,
    "no_answer": Exit.NO_ANSWER,
    "no_worker": Exit.NO_ANSWER,
    "not_found": Exit.NO_REPORT,
}

#: By class, for errors that never stand on the wire.
BY_CLASS: Final[tuple[tuple[type[ContextBuilderError], Exit], ...]] = (
    (ConfigError, Exit.CONFIGURATION),
    (ToolError, Exit.CONFIGURATION),
    (PromptError, Exit.CONFIGURATION),
    (BusError, Exit.UNREACHABLE),
    (SchemaError, Exit.FAILED),
    (StoreError, Exit.UNREACHABLE),
)


def exit_code(error: ContextBuilderError) -> Exit:
    """Return the exit code for an error."""
    if error.code in BY_CODE:
        return BY_CODE[error.code]
    return next((code for kind, code in BY_CLASS if isinstance(error, kind)), Exit.FAILED)


def tell(what: str, detail: str, problems: Iterable[Problem] = ()) -> None:
    """Say on stderr what went wrong, and at which places where the detail doesn't name them."""
    typer.echo(f"{what}: {detail}", err=True)
    for problem in problems:
        if problem.pointer not in detail:
            said = "" if problem.detail in detail else f": {problem.detail}"
            typer.echo(f"  at {problem.pointer}{said}", err=True)


def _marked(error: ContextBuilderError) -> str:
    """Return the detail; where settings have a line a problem, each is marked as one."""
    if not isinstance(error, ConfigError):
        return error.detail
    # a line that is set in belongs to the one before it
    return re.sub(r"\n(?!\s)", "\nerror: ", error.detail)


class ErrorsBecomeExits(TyperGroup):
    """The outermost group: our errors end as a line and an exit code, never as a traceback."""

    # typer vendors Click, whose Context it does not export
    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ContextBuilderError as error:
            tell("error", _marked(error), error.problems)
            raise typer.Exit(exit_code(error)) from error
