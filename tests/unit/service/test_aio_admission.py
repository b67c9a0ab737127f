"""Large payloads are admitted by their bytes."""

import asyncio

from service.aio import LARGE_TEXT, Admission


async def test_large_payloads_are_admitted_in_their_order_up_to_the_limit() -> None:
    """One beyond the limit is admitted alone; small ones don't wait."""
    admission, admitted = Admission(2 * LARGE_TEXT), list[int]()
    gates = [asyncio.Event() for _ in range(6)]

    async def hold(number: int, size: int) -> None:
        async with admission.admit(size):
            admitted.append(number)
            await gates[number].wait()

    sizes = (LARGE_TEXT, LARGE_TEXT, 3 * LARGE_TEXT, LARGE_TEXT, LARGE_TEXT, 1)
    async with asyncio.TaskGroup() as tasks:
        for number, size in enumerate(sizes):
            tasks.create_task(hold(number, size))
        seen = []
        for gate in gates:
            await asyncio.sleep(0.01)
            seen.append(sorted(admitted))
            gate.set()
    assert seen == [[0, 1, 5], [0, 1, 5], [0, 1, 2, 5], *3 * [[0, 1, 2, 3, 4, 5]]]


async def test_one_that_is_cancelled_leaves_its_place() -> None:
    """Whether it waits or is admitted."""
    admission = Admission(LARGE_TEXT)

    async def hold() -> None:
        async with admission.admit(LARGE_TEXT):
            await asyncio.Event().wait()

    holding, waiting = (asyncio.create_task(hold()) for _ in range(2))
    await asyncio.sleep(0.01)
    counts = [admission.waiting]
    for task in (waiting, holding):
        task.cancel()
        await asyncio.wait([task])
        counts.append(admission.waiting)
    assert counts == [1, 0, 0]
    async with asyncio.timeout(10), admission.admit(LARGE_TEXT):
        pass
