"""The recorder, on a bus in memory, over a store that comes and goes."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from formatters.model import Row
from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import open_memory_bus
from service.adapters.memory.hub import MemoryHub
from service.config.settings import BusSettings, Settings
from service.errors import StoreError
from service.wire.protocol import Topics
from service.worker import recorder
from service.worker.recorder import Recorder
from tests.support import BrokenHistory, MakeBuilder, run_recorder


class Recovering(BrokenHistory):
    """A store that is away for the first writes, and may be before each further one."""

    def __init__(self, failures: int, again: int) -> None:
        super().__init__()
        self.failures = failures
        self.again = again
        self.ids: list[object] = []

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Fail n times, then remember the ids, each once, as a store does."""
        if self.failures:
            self.failures -= 1
            raise StoreError("away")
        self.ids += [message["id"] for message in messages if message["id"] not in self.ids]
        self.failures = self.again
        return len(messages)


@pytest.mark.parametrize(("every", "outages"), [(0, 1), (1, 3)])
async def test_rows_wait_for_a_store_that_is_away(
    monkeypatch: pytest.MonkeyPatch, every: int, outages: int
) -> None:
    """A long outage is no attempt and is logged once: no row is dead-lettered or overtaken.

    The next outage is logged again.
    """
    monkeypatch.setattr(recorder, "PAUSE", 0.02)
    hub = MemoryHub()
    lease = 0.1
    settings = Settings(bus=BusSettings(lease_seconds=lease, heartbeat_seconds=0.05))
    history = Recovering(failures=20, again=every)
    async with open_memory_bus(BusOptions(lease_seconds=lease), hub) as bus:
        for number in range(3):
            row = {"id": f"a{number}", "owner_key": "o", "role": "AI", "content": "hi"}
            await bus.append(Topics.LLM_RESULTS, json.dumps(row).encode())
        with capture_logs() as logs:
            writing = Recorder(history, bus, settings)
            running = asyncio.create_task(run_recorder(writing, settings.bus))
            async with asyncio.timeout(60):
                while len(history.ids) < 3:  # noqa: ASYNC110 - no event for a written row
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])

    assert [each["event"] for each in logs].count("recorder.interrupted") == outages
    assert history.ids == ["a0", "a1", "a2"]
    assert Topics.CONTEXT_BUILD_DEAD not in hub.streams


@pytest.mark.parametrize("topic", [Topics.LLM_RESULTS, Topics.HISTORY_IMPORT])
async def test_calls_of_another_api_are_stored_with_a_warning(
    make_builder: MakeBuilder, topic: Topics
) -> None:
    """Once for each row that loses its calls: the log says which, and how to write them."""
    use = {"type": "tool_use", "id": "c1", "name": "find", "input": {}}
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    row = {"owner_key": "o", "role": "assistant", "content": [use]}
    sent = [{**row, "id": "a0"}, {**row, "id": "a0"}, {**row, "id": "a1", "tool_calls": [call]}]
    history = make_builder().history
    async with open_memory_bus(BusOptions(), MemoryHub()) as bus:
        for each in sent:
            await bus.append(topic, json.dumps(each).encode())
        with capture_logs() as logs:
            await Recorder(history, bus, Settings()).take_new()

    assert len(await history.rows("o", ["a0", "a1"])) == 2
    (line,) = [each for each in logs if each["event"] == "recorder.not_read"]
    assert (line["owner_key"], line["row_id"], line["log_level"]) == ("o", "a0", "warning")
    assert line["reason"] == (
        "blocks of type tool_use: not read; write calls as tool_calls,"
        " and each result as a message of the role tool"
    )


async def test_a_time_that_cannot_be_read_is_logged(make_builder: MakeBuilder) -> None:
    """Once for a row that is new; the log doesn't quote it."""
    row = {"id": "t", "owner_key": "o", "role": "ai", "content": "Hi", "timestamp": "whenever"}
    async with open_memory_bus(BusOptions(), MemoryHub()) as bus:
        for sent in (row, row, {**row, "id": "u", "timestamp": None}):
            await bus.append(Topics.LLM_RESULTS, json.dumps(sent).encode())
        with capture_logs() as logs:
            await Recorder(make_builder().history, bus, Settings()).take_new()

    (line,) = [each for each in logs if each["event"] == "recorder.not_read"]
    assert (line["row_id"], line["reason"]) == ("t", "timestamp: write ISO 8601")


async def test_a_misspelt_key_is_logged(make_builder: MakeBuilder) -> None:
    """Once for a row that is new; keys of the sender's own are not."""
    row = {"id": "t", "owner_key": "o", "role": "tool", "content": "15 degrees", "source": "met"}
    async with open_memory_bus(BusOptions(), MemoryHub()) as bus:
        for _ in range(2):
            sent = {**row, "conversation_id": "c", "toolcallid": "w1"}
            await bus.append(Topics.TOOLS_RESULTS, json.dumps(sent).encode())
        with capture_logs() as logs:
            await Recorder(make_builder().history, bus, Settings()).take_new()

    (line,) = [each for each in logs if each["event"] == "recorder.unknown_key"]
    assert (line["owner_key"], line["row_id"], line["log_level"]) == ("o", "t", "warning")
    assert line["reason"] == "/toolcallid is ignored; did you mean tool_call_id?"


@pytest.mark.parametrize(("number", "text"), [(1, "once"), (2, "2 times")])
def test_one_attempt_is_counted_as_one(number: int, text: str) -> None:
    """In the reasons of dead letters."""
    assert recorder.times(number) == text
