"""Run what a command waits for, so that it closes what it has opened however it ends."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import typer

from service.cli.exits import Exit

T = TypeVar("T")

#: What a command comes to that a signal has ended.
ENDS: Final[Mapping[int, Exit]] = {
    signal.SIGINT: Exit.INTERRUPTED,
    signal.SIGTERM: Exit.STOPPED,
}


def until_told(main: Coroutine[Any, Any, T], *, endless: bool = False) -> T:
    """Run to the end, or until SIGTERM or Ctrl-C, which is then answered by an exit code.

    A command has processes of others under it, servers of tools for example, which the signal
    alone would leave behind: so it is cancelled, and ends them first. What is ``endless`` has no
    other end, so a signal is a good one.
    """
    return asyncio.run(_heeding(main, endless=endless))


async def _heeding(main: Coroutine[Any, Any, T], *, endless: bool) -> T:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        task.cancel()
        # whoever asks again doesn't want to wait
        loop.remove_signal_handler(number)

    with suppress(NotImplementedError):  # Windows knows only Ctrl-C, which interrupts
        for number in ENDS:
            loop.add_signal_handler(number, tell, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:
            raise
        raise typer.Exit(Exit.OK if endless else ENDS[told[0]]) from None
