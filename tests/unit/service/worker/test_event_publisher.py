"""Events go out on the bus in the envelope of every message, or are logged as lost."""

import json
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from service.adapters.memory.bus import open_memory_bus
from service.errors import BusError
from service.wire.events import EventMetadata
from service.wire.protocol import Topics
from service.worker.event_publisher import EventPublisher


async def test_an_event_is_heard_on_its_topic() -> None:
    """With owner, run and what led to it; each has an id of its own."""
    async with open_memory_bus() as bus, bus.subscribe(Topics.CONTEXT_COMPACTED) as heard:
        for cause in (EventMetadata(), EventMetadata(request_id="msg_1", build_id="bld_1")):
            await EventPublisher(bus).publish(
                Topics.CONTEXT_COMPACTED, {"n": 1}, owner_key="ana", run_id="run_1", cause=cause
            )
        first, second = [json.loads(await anext(heard)) for _ in range(2)]

    assert first["id"] != second["id"]
    assert {key: first[key] for key in ("owner_key", "run_id", "role", "content")} == {
        "owner_key": "ana",
        "run_id": "run_1",
        "role": "SYSTEM",
        "content": {"n": 1},
    }
    assert datetime.fromisoformat(first["timestamp"]).tzinfo is not None
    assert second["metadata"] == {
        "request_id": "msg_1",
        "correlation_id": None,
        "traceparent": None,
        "build_id": "bld_1",
    }


class Away:
    """A bus that is away."""

    def now(self) -> datetime:
        """Return a moment."""
        return datetime(2025, 1, 1, tzinfo=UTC)

    async def publish(self, topic: str, payload: bytes) -> int:
        """Fail."""
        raise BusError("away")


@pytest.mark.parametrize("content", [{"n": 1}, {"n": object()}])
async def test_what_cannot_be_reported_is_logged(content: dict[str, object]) -> None:
    """A bus that is away, and content that is no JSON, cost a line and raise nothing."""
    events = EventPublisher(Away())  # type: ignore[arg-type] # of a bus, it has what events need
    with capture_logs() as lines:
        await events.publish(Topics.CONTEXT_PRUNED, content, owner_key="ana", run_id=None)
    assert [line["event"] for line in lines] == ["event.lost"]
    assert lines[0]["topic"] == "context.pruned"
