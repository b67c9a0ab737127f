"""Changes of one owner's history come in the order of their calls."""

import asyncio

from service.adapters.store_records import OwnerLocks


async def test_owners_take_turns_apart() -> None:
    """Those of one owner come in turn; another owner does not wait for them."""
    locks, order, held = OwnerLocks(), [], asyncio.Event()

    async def change(owner: str, name: str, *, until: asyncio.Event) -> None:
        async with locks.of(owner):
            await until.wait()
            order.append(name)

    free = asyncio.Event()
    free.set()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change("o", "first", until=held))
        tasks.create_task(change("o", "second", until=free))
        await tasks.create_task(change("p", "other", until=free))
        held.set()

    assert order == ["other", "first", "second"]


async def test_owners_are_forgotten() -> None:
    """An owner whom nothing happens to takes no room."""
    locks = OwnerLocks()
    async with locks.of("o"):
        assert len(locks._locks) == 1
    assert len(locks._locks) == 0
