"""A backlog works off what is put into it, and holds nobody up."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from formatters.model import Message, Role
from service.build.after_answer import BUILD_BYTES, ROW_BYTES, Backlog, build_bytes
from service.build.history_reader import History
from tests.support import MakeBuilder, MakeRequest


async def test_items_are_worked_off_in_their_order() -> None:
    """Those that came together go together, until all that was put in is done."""
    done: list[list[int]] = []

    async def work(items: Sequence[int]) -> None:
        await asyncio.sleep(0)
        done.append(list(items))

    backlog = Backlog(work, size=3, batch=2, size_of=int)
    assert [backlog.put(item) for item in range(4)] == [True, True, True, False]
    task = asyncio.create_task(backlog.run())
    await backlog.drain()
    task.cancel()
    await asyncio.wait([task])

    assert done == [[0, 1], [2]]


async def test_a_drain_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever for work that does not end."""
    monkeypatch.setattr("service.build.after_answer.DRAIN_SECONDS", 0.01)

    async def work(_: Sequence[int]) -> None:
        await asyncio.Event().wait()

    backlog = Backlog(work, size=1, batch=1, size_of=int)
    backlog.put(1)
    task = asyncio.create_task(backlog.run())
    async with asyncio.timeout(60):  # it would wait for ever
        await backlog.drain()
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_what_waits_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heavy item waits alone, light ones together, and what is done makes room again."""
    monkeypatch.setattr("service.build.after_answer.MAX_BYTES", 10)
    done: list[int] = []

    async def work(items: Sequence[int]) -> None:
        done.extend(items)

    backlog = Backlog(work, size=9, batch=9, size_of=int)
    assert [backlog.put(item) for item in (4, 6, 1)] == [True, True, False]
    task = asyncio.create_task(backlog.run())
    await backlog.drain()
    assert [backlog.put(item) for item in (99, 1)] == [True, False]
    await backlog.drain()
    assert backlog.put(1)
    task.cancel()
    await asyncio.wait([task])

    assert done == [4, 6, 99]


async def test_a_build_weighs_its_rows_and_their_texts(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Each row that was read adds its own bytes, whether the context shows it or not."""
    built = await make_builder().build_or_raise(make_request())
    rows = tuple(Message(id=f"m{n}", role=Role.HUMAN, content="x" * 1000) for n in range(50))
    long = replace(built, gathered=replace(built.gathered, history=History(messages=rows)))

    assert build_bytes(built) > BUILD_BYTES
    assert build_bytes(long) - build_bytes(built) >= 50 * (ROW_BYTES + 1000)
