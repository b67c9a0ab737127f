"""A worker that is paused for longer than its leases, and then goes on."""

import asyncio
from collections.abc import Iterator
from itertools import count, islice
from typing import Final

from bench.chaos.stage import LOOK_SECONDS, Figures, Stage
from bench.chaos.traffic import Asked
from bench.crew import WorkerProcess

#: Leases that the worker is paused for.
LEASES: Final = 2.5
#: Looks at what it holds that have to be alike, before others take its requests over.
STEADY_LOOKS: Final = 3
#: Requests that are sent at a time, until it answers one of them.
MORE: Final = 10


async def paused_worker(stage: Stage) -> Figures:
    """Freeze a worker with requests in work until others have answered them, and let it go on."""
    more = map(Asked, count(stage.size.requests))
    entries = await stage.send(stage.requests)
    victim, held = await _freeze_busy(stage, entries, more)
    await asyncio.sleep(LEASES * stage.size.lease_seconds)
    answered_by_others = await stage.until_settled()
    requests = [entries[entry] for entry in held]
    before = await _all_of(stage, requests)
    victim.thaw()
    went_on = await _goes_on(stage, victim, more)
    return {
        **await stage.result(),
        "held": len(held),
        "fenced": int(await _fenced(victim)),
        "answered_by_others": answered_by_others,
        "went_on": went_on and victim.runs,
        "changed": before != await _all_of(stage, requests),
    }


async def _freeze_busy(
    stage: Stage, entries: dict[str, Asked], more: Iterator[Asked]
) -> tuple[WorkerProcess, list[str]]:
    """Freeze a worker at a moment at which it holds requests; returns it and their entries.

    It doesn't write to the histories at that time: no other worker could until it goes on.
    Where all requests are answered before such a moment comes, more are sent, and added to
    ``entries``.
    """
    while True:
        if not await stage.open():
            entries |= await stage.send(list(islice(more, stage.size.requests)))
        for worker in stage.crew.at_work:
            await worker.freeze()
            if await stage.can_write() and (held := await _held_for_good(stage, worker)):
                return worker, held
            worker.thaw()
        await asyncio.sleep(LOOK_SECONDS)


async def _held_for_good(stage: Stage, frozen: WorkerProcess) -> list[str]:
    """Return the entries that a frozen worker holds.

    The server may not have read yet what the worker sent last: answers, which settle some of
    these entries, or a read, which adds others. So this waits until nothing changes any more.
    """
    looks: list[list[str]] = []
    while len(looks) < STEADY_LOOKS or looks.count(looks[-1]) < STEADY_LOOKS:
        looks = [*looks, await stage.held(frozen.name)][-STEADY_LOOKS:]
        await asyncio.sleep(LOOK_SECONDS)
    return looks[-1]


async def _goes_on(stage: Stage, thawed: WorkerProcess, more: Iterator[Asked]) -> bool:
    """Wait until a worker that was frozen has nothing in work, and answers requests again.

    How many of its answers are refused is not waited for: after a long pause its connections have
    timed out, and it gives requests back without an answer.
    """

    async def rests() -> bool:
        return (await thawed.metrics())["build_in_flight"] == 0

    async def answers() -> bool:
        await stage.send(list(islice(more, MORE)))
        return await _answered(thawed) > before

    if not await stage.until(rests):
        return False
    before = await _answered(thawed)
    return await stage.until(answers) and await stage.until_settled()


async def _answered(worker: WorkerProcess) -> float:
    """Return how many requests a worker has answered with a context."""
    metrics = await worker.metrics()
    return metrics.get('build_requests_total{outcome="success"}', 0)


async def _fenced(worker: WorkerProcess) -> float:
    """Return how many deliveries of a worker were another's when it had an answer."""
    metrics = await worker.metrics()
    return sum(
        metrics[f'duplicates_suppressed_total{{reason="{reason}"}}']
        for reason in ("stored", "lease_lost")
    )


async def _all_of(stage: Stage, requests: list[Asked]) -> list[object]:
    """Return all that is stored and was replied for requests."""
    async with stage.client.pipeline(transaction=False) as pipeline:
        for asked in requests:
            pipeline.get(asked.result_key)
            pipeline.lrange(asked.reply_to, 0, -1)
        found: list[object] = await pipeline.execute()
        return found
