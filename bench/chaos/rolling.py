"""Workers that are replaced one by one under load, as an update does it."""

from bench.chaos.stage import Figures, Stage
from bench.names import GROUP, STREAM


async def rolling_restart(stage: Stage) -> Figures:
    """Start a new worker for each of the first ones, and then ask that one to end."""
    await stage.send(stage.requests)
    old = list(stage.crew.workers)
    codes: list[int] = []
    left_behind = 0
    for number, worker in enumerate(old):
        await stage.until_settled(stage.size.requests * (len(old) - number) // (len(old) + 1))
        await stage.crew.hire()
        codes.append(await worker.stop())
        left_behind += (await stage.holders()).get(worker.name, 0)
    await stage.until_settled()
    members = await stage.client.xinfo_consumers(STREAM, GROUP)
    names = {worker.name.encode() for worker in old}
    return {
        **await stage.result(),
        "exit_codes": codes,
        "left_behind": left_behind,
        "still_in_group": sum(each["name"] in names for each in members),
    }
