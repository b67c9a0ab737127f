"""The event loop that programs run on."""

import asyncio
import gc
import subprocess
import sys
from types import SimpleNamespace

import pytest

from service import aio as event_loop


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_without_uvloop_it_is_that_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra isn't installed, programs run as `asyncio.run` runs them."""
    monkeypatch.setattr(event_loop, "find_spec", lambda name: None)
    assert type(event_loop.run(_loop())).__module__.startswith("asyncio")


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the program returns comes back from uvloop's own `run`."""
    ran = []

    def run(main: object) -> object:
        ran.append(main)
        return asyncio.run(main)  # type: ignore[arg-type] # a coroutine

    monkeypatch.setattr(event_loop, "find_spec", lambda name: SimpleNamespace(name=name))
    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(run=run))
    main = _loop()
    assert isinstance(event_loop.run(main), asyncio.AbstractEventLoop)
    assert ran == [main]


def test_what_is_loaded_is_no_longer_looked_through() -> None:
    """After settling, collections leave out what there was, and come less often."""
    frozen = gc.get_freeze_count()
    program = (
        "import gc; from service.aio import reduce_garbage_collection; before = gc.get_threshold();"
        " reduce_garbage_collection();"
        " print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] > before[0])"
    )
    said = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, check=True
    )
    assert said.stdout.split() == [b"True", b"True"]
    assert gc.get_freeze_count() == frozen, "only the other process is settled"
