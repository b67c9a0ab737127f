"""A backlog works off what is put into it, and holds nobody up."""

import asyncio
from collections.abc import Sequence

import pytest

from service.backlog import Backlog


async def test_items_are_worked_off_in_their_order() -> None:
    """Those that came together go together, until all that was put in is done."""
    done: list[list[int]] = []

    async def work(items: Sequence[int]) -> None:
        await asyncio.sleep(0)
        done.append(list(items))

    backlog = Backlog(work, size=3, batch=2)
    assert [backlog.put(item) for item in range(4)] == [True, True, True, False]
    task = asyncio.create_task(backlog.run())
    await backlog.drain()
    task.cancel()
    await asyncio.wait([task])

    assert done == [[0, 1], [2]]


async def test_a_drain_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever for work that does not end."""
    monkeypatch.setattr("service.backlog.DRAIN", 0.01)

    async def work(_: Sequence[int]) -> None:
        await asyncio.Event().wait()

    backlog = Backlog(work, size=1, batch=1)
    backlog.put(1)
    task = asyncio.create_task(backlog.run())
    async with asyncio.timeout(10):  # it would wait for ever
        await backlog.drain()
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
