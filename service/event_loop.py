"""Run an asyncio program on the fastest event loop that is installed."""

import asyncio
import gc
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: New objects from which on they are looked through, where Python's default is 700, and how many
#: such looks lead to one through older ones.
GENERATIONS: Final = (20_000, 20, 50)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end, as `asyncio.run` does; on uvloop where that is installed.

    uvloop comes with the extra ``fast``; there is none for Windows.
    """
    if find_spec("uvloop") is None:
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - it may not be installed

    result: T = uvloop.run(main)
    return result


def settle_memory() -> None:
    """Spare a process that is ready, and will run for long, most of its garbage collections.

    What has been loaded, some hundred thousand objects, stays anyway, and is never looked through
    again. Nearly all that a request leaves behind goes at once, as nothing refers to it; what is
    left for collections are a few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)
