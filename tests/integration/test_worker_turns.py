"""Workers that get more requests of one owner than they can build at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from service.adapters.memory.store import MemoryHistory
from service.config.settings import GatherSettings
from service.ports.stores import HistoryPage
from service.worker import pace
from service.worker import runner as worker
from tests.integration.bus_places import Place
from tests.integration.test_worker import Crew, asking, counted, open_crew, until
from tests.support import NOW

pytestmark = pytest.mark.parametrize("place", ["memory", "redis"], indirect=True)


class SlowHistory(MemoryHistory):
    """A history that takes a while to read."""

    async def recent(self, *args: Any, **options: Any) -> HistoryPage:
        """Wait, and read."""
        await asyncio.sleep(0.1)
        return await super().recent(*args, **options)


@pytest.fixture
async def crew(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    """Give a crew without workers, of which each builds forty requests per second at most."""
    # also where this machine is so fast that nothing waits for long
    monkeypatch.setattr(worker, "LATE", timedelta(0))
    # nor where it is so busy that a history is slow to read
    patient = GatherSettings(history_timeout_seconds=30)
    async with open_crew(place, gather=patient) as crew:
        tokenizers = crew.builder.tokenizers
        history = SlowHistory(lambda: tokenizers.counter("o200k_base"), lambda: NOW)
        sources = replace(crew.builder.sources, history=history)
        crew.builder = replace(crew.builder, sources=sources)
        yield crew


async def submit(crew: Crew, owner: str, count: int, timeout_ms: int = 60_000) -> None:
    """Add requests of an owner to the stream; all replies go to one list."""
    metadata = {
        "reply_to": f"context.reply.{crew.place.prefix}",
        "reply_kind": "list",
        "timeout_ms": timeout_ms,
    }
    for number in range(count):
        request = asking(id=f"{owner}_{number}", owner_key=owner, metadata=metadata)
        await crew.bus.submit(json.dumps(request).encode())


async def replies(crew: Crew, count: int) -> list[dict[str, Any]]:
    """Wait until everything is settled; return the replies in their order, this many."""

    async def settled() -> bool:
        depth = await crew.bus.requests.depth()
        return depth.lag == depth.pending == 0

    await until(settled, 60)
    sent = await crew.place.replies(f"context.reply.{crew.place.prefix}", "list")
    assert len(sent) == count
    return [json.loads(reply) for reply in sent]


async def test_other_owners_do_not_wait_for_a_flood(crew: Crew) -> None:
    """Their requests behind it are among the first, and its own keep their order, roughly."""
    await submit(crew, "flooder", 80)
    await submit(crew, "one", 1)
    await submit(crew, "two", 3)
    await crew.hire()
    names = [reply["metadata"]["request_id"] for reply in await replies(crew, 84)]

    assert {"one_0", "two_0", "two_1", "two_2"} < set(names[:20])
    numbers = [int(name.removeprefix("flooder_")) for name in names if name.startswith("flooder")]
    assert sorted(numbers) == list(range(80))
    assert all(abs(number - index) < 8 for index, number in enumerate(numbers))


async def test_a_burst_of_one_owner_is_built(crew: Crew) -> None:
    """Nothing of it is refused that is built in time, also where several workers share it."""
    await submit(crew, "flooder", 100)
    await crew.hire()
    await crew.hire()

    assert {reply["content"]["status"] for reply in await replies(crew, 100)} == {"success"}
    assert await crew.dismiss() == [True, True]


async def test_what_one_owner_has_too_many_of_is_refused(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As overloaded, before its deadline, and nothing of another owner is."""
    monkeypatch.setattr(pace, "SECONDS", 0.1)
    monkeypatch.setattr(pace, "BUILDS", 4)
    # far from the deadline, which a busy machine would reach before the pace is known
    monkeypatch.setattr(pace, "MARGIN", 0.1)
    await submit(crew, "flooder", 150, timeout_ms=20_000)
    await submit(crew, "other", 5)
    await crew.hire()
    errors = {
        reply["metadata"]["request_id"]: reply["content"]["error"]
        for reply in await replies(crew, 155)
        if reply["content"]["status"] == "error"
    }

    assert counted(crew)["build_requests overloaded"]
    assert {error["code"] for error in errors.values()} <= {"overloaded", "deadline_exceeded"}
    assert all(error["retryable"] for error in errors.values())
    assert all(name.startswith("flooder") for name in errors)


async def test_a_worker_leaves_nothing_behind_that_waits(crew: Crew) -> None:
    """Another builds it at once, and it counts as no attempt."""
    await submit(crew, "flooder", 60)
    await crew.hire()
    await until(lambda: crew.place.replies(f"context.reply.{crew.place.prefix}", "list"))
    assert await crew.dismiss() == [True]
    left = (await crew.bus.requests.depth()).lag
    await crew.hire()
    answered = await replies(crew, 60)

    assert left
    assert {reply["content"]["status"] for reply in answered} == {"success"}
    assert not [name for name in counted(crew) if name.startswith("duplicate")]
