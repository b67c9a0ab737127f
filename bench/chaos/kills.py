"""Workers that are killed one after another while they work."""

import asyncio
import random
from collections.abc import Sequence
from statistics import median, quantiles
from time import monotonic

from bench.chaos.stage import LOOK_SECONDS, Figures, Stage
from bench.chaos.traffic import Asked
from bench.crew import WorkerProcess


async def killed_workers(stage: Stage) -> Figures:
    """Kill random workers that hold requests, spread over the run, and hire others for them."""
    entries = await stage.send(stage.requests)
    watch = Watch(stage)
    chosen = random.Random(stage.size.seed)  # noqa: S311 - to be repeatable
    kills = 0
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch.run())
        for number in range(stage.size.kills):
            left = stage.size.requests * (stage.size.kills - number) // (stage.size.kills + 1)
            if not await stage.until_settled(left):
                break
            victim = await _busy(stage, chosen)
            if victim is None:
                break
            await victim.kill()
            kills += 1
            # what it still holds is read after its end: it can't answer any of that
            watch.add([entries[entry] for entry in await stage.held(victim.name)])
            tasks.create_task(stage.crew.hire())
        await stage.until_settled()
        await watch.done()
        watching.cancel()
    return {
        **await stage.result(),
        "kills": kills,
        "redelivered": len(watch.since_last),
        "redelivery_p50_s": round(median(watch.since_last or [0.0]), 2),
        "redelivery_p95_s": round(_p95(watch.since_last), 2),
        "redelivery_max_s": round(max(watch.since_first, default=0.0), 2),
    }


class Watch:
    """Measures how long it takes until what dead workers held is answered."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: When the holders of a request died.
        self._deaths: dict[Asked, list[float]] = {}
        #: From the last and from the first of them to the answer; accurate to some 0.05 s.
        self.since_last: list[float] = []
        self.since_first: list[float] = []

    def add(self, requests: Sequence[Asked]) -> None:
        """Watch requests from now on."""
        now = monotonic()
        for asked in requests:
            self._deaths.setdefault(asked, []).append(now)

    async def run(self) -> None:
        """Look for answers, until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def done(self) -> None:
        """Wait until all is answered, or nothing more comes of waiting."""

        async def none_left() -> bool:
            return not self._deaths

        await self._stage.until(none_left)

    async def _look(self) -> None:
        waiting = list(self._deaths)
        async with self._stage.client.pipeline(transaction=False) as pipeline:
            for asked in waiting:
                pipeline.exists(asked.result_key)
            answered = await pipeline.execute()
        now = monotonic()
        for asked, there in zip(waiting, answered, strict=True):
            if there:
                deaths = self._deaths.pop(asked)
                self.since_first.append(now - deaths[0])
                self.since_last.append(now - deaths[-1])


async def _busy(stage: Stage, chosen: random.Random) -> WorkerProcess | None:
    """Return a random worker that has requests in work; None where none comes to have any."""
    found: list[WorkerProcess] = []

    async def some() -> bool:
        holders = await stage.holders()
        found[:] = [worker for worker in stage.crew.at_work if holders.get(worker.name)]
        return bool(found)

    return chosen.choice(found) if await stage.until(some) else None


def _p95(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=20)[-1] if len(seconds) > 1 else max(seconds, default=0.0)
