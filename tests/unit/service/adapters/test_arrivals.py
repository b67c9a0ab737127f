import asyncio

import pytest
from structlog.testing import capture_logs

from service.adapters import arrivals as module
from service.adapters.arrivals import Arrivals
from service.errors import BusError


async def test_order_is_kept() -> None:
    """Messages are taken in the order in which they came."""
    arrivals = Arrivals("requests")
    for payload in (b"1", b"2", b"3"):
        arrivals.put(payload)

    assert await arrivals.take(2) == [b"1", b"2"]
    assert await arrivals.take(2) == [b"3"]


async def test_taker_waits() -> None:
    """A reader of an empty queue waits for the first message."""
    arrivals = Arrivals("requests")
    taker = asyncio.create_task(arrivals.take(5))
    await asyncio.sleep(0)
    assert not taker.done()

    arrivals.put(b"1")

    assert await taker == [b"1"]


async def test_too_many_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages above the limit are dropped, counted, and logged at intervals."""
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    arrivals = Arrivals("requests")

    with capture_logs() as logs:
        for payload in (b"1", b"2", b"3", b"4"):
            arrivals.put(payload)

    assert await arrivals.take(10) == [b"1", b"2"]
    assert arrivals.dropped == 2
    assert [line["event"] for line in logs] == ["bus.messages_dropped"]


async def test_too_much_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few large messages do not fill the memory either; what is taken makes room."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 10)
    arrivals = Arrivals("requests")
    arrivals.put(b"12345678")
    arrivals.put(b"123")
    assert await arrivals.take(10) == [b"12345678"]

    arrivals.put(b"123")

    assert await arrivals.take(10) == [b"123"]
    assert arrivals.dropped == 1


async def test_failed_reader_ends_the_wait() -> None:
    """What came before the reader failed is still taken; then the failure shows."""
    arrivals = Arrivals("requests")
    arrivals.put(b"1")
    arrivals.fail(RuntimeError("broken"))

    assert await arrivals.take(1) == [b"1"]
    with pytest.raises(BusError):
        await arrivals.take(1)


async def test_batches_and_singles() -> None:
    """The same messages can be read in batches of at most 256, or one by one."""
    arrivals = Arrivals("requests")
    for number in range(260):
        arrivals.put(b"%d" % number)

    assert len(await anext(arrivals.batches())) == 256
    assert await anext(aiter(arrivals)) == b"256"
