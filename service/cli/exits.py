"""Exit codes, and the two places where a command's end becomes one: an error and a signal."""

import asyncio
import re
import signal
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, Final, TypeVar

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

T = TypeVar("T")

# typer vendors Click, whose types it does not export
Context = Any
Command = Any


class Exit(IntEnum):
    """The exit codes of all commands."""

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
130 interrupted (Ctrl-C), 143 stopped (SIGTERM) before the work was done.

Results go to stdout, messages and logs to stderr.
NO_COLOR switches colours off.
"""

#: By the code of an error on the wire, whether it was raised here or is in a response.
BY_CODE: Final[Mapping[str, Exit]] = {
    "budget_exceeded": Exit.BUDGET,
    "no_answer": Exit.NO_ANSWER,
    "no_worker": Exit.NO_ANSWER,
    "not_found": Exit.NO_REPORT,
}

#: By class, for errors that are never sent; the first match counts.
BY_CLASS: Final[Mapping[type[ContextBuilderError], Exit]] = {
    ConfigError: Exit.CONFIGURATION,
    ToolError: Exit.CONFIGURATION,
    PromptError: Exit.CONFIGURATION,
    SchemaError: Exit.FAILED,  # a `StoreError`, too
    BusError: Exit.UNREACHABLE,
    StoreError: Exit.UNREACHABLE,
}

#: By the signal that ended a command before its work was done.
BY_SIGNAL: Final[Mapping[int, Exit]] = {
    signal.SIGINT: Exit.INTERRUPTED,
    signal.SIGTERM: Exit.STOPPED,
}


class CommandError(ContextBuilderError):
    """A command can't do what was requested."""


class ErrorsBecomeExits(TyperGroup):
    """The outermost group: our errors end as a line and an exit code, never as a traceback."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options before the command."""
        with _plain_messages():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> object:
        """Run the command."""
        try:
            with _plain_messages():
                return super().invoke(ctx)
        except ContextBuilderError as error:
            detail = error.detail
            if isinstance(error, ConfigError):
                # a line per problem is marked; an indented one belongs to the one before it
                detail = re.sub(r"\n(?!\s)", "\nerror: ", detail)
            print_error("error", detail, error.problems)
            raise typer.Exit(exit_code(error)) from error


@contextmanager
def _plain_messages() -> Iterator[None]:
    """Remove pydantic's prefix from errors of options, which typer validates by it."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


def exit_code(error: ContextBuilderError) -> Exit:
    """Return the exit code for an error."""
    if error.code in BY_CODE:
        return BY_CODE[error.code]
    return next((code for kind, code in BY_CLASS.items() if isinstance(error, kind)), Exit.FAILED)


def print_error(label: str, detail: str, problems: Iterable[Problem] = ()) -> None:
    """Print an error on stderr, and a line for each problem that the detail doesn't mention."""
    typer.echo(f"{label}: {detail}", err=True)
    for problem in problems:
        if problem.pointer not in detail:
            cause = "" if problem.detail in detail else f": {problem.detail}"
            typer.echo(f"  at {problem.pointer}{cause}", err=True)


def run_until_stopped(main: Coroutine[Any, Any, T], *, endless: bool = False) -> T:
    """Run a coroutine until it returns, or until SIGTERM or Ctrl-C cancels it.

    A command may have started other processes, such as MCP servers, which would survive if the
    signal ended this process at once; cancelling lets it stop them first. A command that is
    ``endless`` has no other end, so its exit code is then 0.

    Raises:
        typer.Exit: A signal ended it.
    """
    return asyncio.run(_cancel_on_signal(main, endless=endless))


async def _cancel_on_signal(main: Coroutine[Any, Any, T], *, endless: bool) -> T:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        task.cancel()
        # a second signal ends the process at once
        loop.remove_signal_handler(number)

    with suppress(NotImplementedError):  # Windows knows only Ctrl-C, which interrupts
        for number in BY_SIGNAL:
            loop.add_signal_handler(number, cancel, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        raise typer.Exit(Exit.OK if endless else BY_SIGNAL[received[0]]) from None
