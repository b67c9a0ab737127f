"""The sender, on a bus that fails when a test sets it to."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import MemoryBus
from service.adapters.memory.hub import MemoryHub
from service.errors import BusError, OverloadedError
from service.ports.bus import Answer, AnswerOutcome, Identity, Receipt
from service.worker import runner
from service.worker.sender import BATCH, MAX_ATTEMPTS, Sender


class FullError(BusError, OverloadedError):
    """The bus takes nothing from anybody."""


class FailingBus(MemoryBus):
    """A bus that is away, or full, for some calls, and never takes the answers to some requests."""

    def __init__(self, *bad: str, tells: bool = False) -> None:
        super().__init__(MemoryHub(), BusOptions())
        self.bad = bad
        #: Whether it says which answers it doesn't take.
        self.tells = tells
        self.own_error = BusError("at fault")
        self.away = 0
        self.full = 0
        #: The requests of each batch that it was given while it was there.
        self.batches: list[list[str]] = []

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Fail at some of a batch, or at it: what can be taken is taken all the same."""
        if self.away:
            self.away -= 1
            raise BusError("away")
        if self.full:
            self.full -= 1
            raise FullError
        self.batches.append([answer.identity.id for answer in answers])
        good = [answer for answer in answers if answer.identity.id not in self.bad]
        receipts = await super().finish(good)
        if self.tells:
            reported = iter(receipts)
            failed = Receipt(outcome=AnswerOutcome.FAILED, error=self.own_error)
            return [failed if each.identity.id in self.bad else next(reported) for each in answers]
        if len(good) < len(answers):
            raise self.own_error
        return receipts

    async def ping(self) -> None:
        """Fail while the bus is away."""
        if self.away:
            raise BusError("away")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0)


@asynccontextmanager
async def sending(bus: FailingBus) -> AsyncIterator[Sender]:
    """Run a sender, for some seconds at most."""
    sender = Sender(bus)
    running = asyncio.create_task(runner.repeat_with_backoff("sender", sender.flush))
    async with asyncio.timeout(60):
        yield sender
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def answers_to(bus: FailingBus, *names: str) -> list[Answer]:
    """Return an answer for each request, which is in the hands of the bus's consumer."""
    for name in names:
        await bus.submit(name.encode())
    return [
        Answer(
            delivery=delivery,
            identity=Identity("o", name),
            fingerprint=name,
            response=b"{}",
            reply_to="replies",
            reply_kind="list",
        )
        for name, delivery in zip(
            names, await bus.requests.receive(len(names), wait=0), strict=True
        )
    ]


async def sent(sender: Sender, answers: Sequence[Answer]) -> list[Receipt | BaseException]:
    """Send answers at the same time; returns what each of the senders got."""
    return await asyncio.gather(*map(sender.send, answers), return_exceptions=True)


async def test_answers_share_round_trips() -> None:
    """Answers that have come together go in batches of a limited size, in their order."""
    bus = FailingBus()
    names = [str(number) for number in range(BATCH + 1)]
    async with sending(bus) as sender:
        receipts = await sent(sender, await answers_to(bus, *names))

    assert receipts == [Receipt(outcome=AnswerOutcome.SENT)] * (BATCH + 1)
    assert bus.batches == [names[:BATCH], names[BATCH:]]


async def test_bad_answer_does_not_hold_up_others() -> None:
    """Only an answer that can't be sent is dropped; the others are sent."""
    bus = FailingBus("bad")
    async with sending(bus) as sender:
        first, bad, last = await sent(sender, await answers_to(bus, "a", "bad", "b"))
        later = await sent(sender, await answers_to(bus, "c", "d"))

    assert isinstance(bad, BusError)
    # the bus had taken them before, in the batch that failed
    assert [first, last] == [Receipt(outcome=AnswerOutcome.SENT)] * 2
    assert later == [Receipt(outcome=AnswerOutcome.SENT)] * 2
    assert len(bus._hub.replies["replies"].payloads) == 4
    alone = [["a"], ["bad"], ["b"], *[["bad"]] * (MAX_ATTEMPTS - 1)]
    assert bus.batches == [["a", "bad", "b"], *alone, ["c", "d"]]


async def test_bad_answer_that_is_reported_is_tried_alone() -> None:
    """Where the bus says which answer failed, the others have their receipts at once."""
    bus = FailingBus("bad", tells=True)
    async with sending(bus) as sender:
        first, bad, last = await sent(sender, await answers_to(bus, "a", "bad", "b"))

    assert isinstance(bad, BusError)
    assert [first, last] == [Receipt(outcome=AnswerOutcome.SENT)] * 2
    assert bus.batches == [["a", "bad", "b"], *[["bad"]] * (MAX_ATTEMPTS - 1)]


async def test_answers_that_are_reported_as_failed_are_given_up() -> None:
    """Where all of a batch fail by themselves, each is given up with its error."""
    bus = FailingBus("bad", "worse", tells=True)
    async with sending(bus) as sender:
        errors = await sent(sender, await answers_to(bus, "bad", "worse"))
        (later,) = await sent(sender, await answers_to(bus, "good"))

    assert [str(error) for error in errors] == ["at fault"] * 2
    assert later == Receipt(outcome=AnswerOutcome.SENT)
    assert bus.batches == [*[["bad", "worse"]] * MAX_ATTEMPTS, ["good"]]


async def test_bus_that_is_full_for_some_costs_no_answer() -> None:
    """An answer for which there is no room waits for it, however often it was tried."""
    bus = FailingBus("bad", tells=True)
    bus.own_error = FullError()
    async with sending(bus) as sender:
        waiting = asyncio.create_task(sent(sender, await answers_to(bus, "a", "bad")))
        while len(bus.batches) < MAX_ATTEMPTS * 2:  # noqa: ASYNC110 - the fake has nothing to wait for
            await asyncio.sleep(0)
        bus.bad = ()
        receipts = await waiting

    assert receipts == [Receipt(outcome=AnswerOutcome.SENT)] * 2


async def test_many_bad_answers_are_given_up() -> None:
    """Each of several bad answers is given up for itself."""
    bus = FailingBus("bad", "worse")
    async with sending(bus) as sender:
        bad, good, worse = await sent(sender, await answers_to(bus, "bad", "good", "worse"))

    assert isinstance(good, Receipt)
    assert isinstance(bad, BusError)
    assert isinstance(worse, BusError)


async def test_nobody_waits_for_a_bad_answer_any_more() -> None:
    """A bad answer whose sender was cancelled is given up as well."""
    bus = FailingBus("bad")
    async with sending(bus) as sender:
        bad, good = await answers_to(bus, "bad", "good")
        waiting = asyncio.create_task(sender.send(bad))
        await asyncio.sleep(0)
        waiting.cancel()
        receipt = await sender.send(good)

    assert isinstance(receipt, Receipt)
    assert waiting.cancelled()


@pytest.mark.parametrize("outage", ["away", "full"])
async def test_outage_costs_no_answer(outage: str) -> None:
    """While the bus is away, or takes nothing from anybody, answers wait, however often tried."""
    bus = FailingBus()
    setattr(bus, outage, MAX_ATTEMPTS * 10)
    async with sending(bus) as sender:
        receipts = await sent(sender, await answers_to(bus, "a", "b"))

    assert receipts == [Receipt(outcome=AnswerOutcome.SENT)] * 2
    assert [name for batch in bus.batches for name in batch] == ["a", "b"]


async def test_outage_is_not_counted_against_a_bad_answer() -> None:
    """An outage while answers go one by one costs none of them."""
    bus = FailingBus("bad")
    async with sending(bus) as sender:
        waiting = asyncio.create_task(sent(sender, await answers_to(bus, "bad", "good")))
        while not bus.batches:  # noqa: ASYNC110 - the fake has nothing to wait for
            await asyncio.sleep(0)
        bus.away = MAX_ATTEMPTS * 10
        bad, good = await waiting

    assert isinstance(bad, BusError)
    assert str(bad) == "at fault"
    assert isinstance(good, Receipt)
