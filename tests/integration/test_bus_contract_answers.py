"""What every bus promises about answers, on every bus there is."""

import asyncio
import json

import pytest

from service.ports.bus import AnswerMode, AnswerOutcome, Bus, Delivery, Identity
from service.wire.protocol import Topics
from service.wire.response import StoredResult
from tests.integration.bus_places import (
    ASKED,
    SHORT,
    Place,
    RedisPlace,
    answer,
    received,
    taken_over,
    until,
)

pytestmark = pytest.mark.integration


# --- finishing -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "stream"])
async def test_finish_stores_sends_and_settles(place: Place, kind: str) -> None:
    """A finished answer is sent once, kept for retries, and its delivery settled."""
    bus = await place.open("one", lease_seconds=0)
    reply_to = f"{place.prefix}replies"
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    (receipt,) = await bus.finish([answer(delivery, reply_to=reply_to, reply_kind=kind)])

    assert (receipt.outcome, receipt.receivers) == (AnswerOutcome.SENT, None)
    assert await place.replies(reply_to, kind) == [b'{"n":1}']
    assert await bus.find_results([ASKED]) == [StoredResult(fingerprint="f1", response={"n": 1})]
    assert await bus.requests.claim(10) == []


async def test_channel_reply_counts_receivers(place: Place) -> None:
    """A reply on a channel reaches those who listen, and says how many they are."""
    bus = await place.open("one")
    reply_to = f"{place.prefix}replies"
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    async with bus.subscribe(reply_to) as replies:
        (receipt,) = await bus.finish([answer(delivery, reply_to=reply_to)])
        async with asyncio.timeout(60):
            assert await anext(replies) == b'{"n":1}'
    assert receipt.receivers == 1


async def test_unheard_reply_is_counted_as_such(place: Place) -> None:
    """A channel reply that nobody hears is sent all the same, with no receivers."""
    bus = await place.open("one")
    await bus.submit(b"1")

    (receipt,) = await bus.finish([answer((await received(bus))[0], reply_to=f"{place.prefix}r")])

    assert (receipt.outcome, receipt.receivers) == (AnswerOutcome.SENT, 0)


async def test_second_answer_yields(place: Place) -> None:
    """A request answered already is not answered again; its delivery stays with the worker."""
    bus = await place.open("one")
    reply_to = f"{place.prefix}replies"
    await bus.submit(b"1")
    await bus.submit(b"1")
    first, second = await received(bus)
    both = [
        answer(each, reply_to=reply_to, reply_kind="list", response=b'{"n":%d}' % number)
        for number, each in enumerate((first, second))
    ]

    outcomes = [receipt.outcome for receipt in await bus.finish(both)]

    assert outcomes == [AnswerOutcome.SENT, AnswerOutcome.ANSWERED]
    assert await place.replies(reply_to, "list") == [b'{"n":0}']
    again = answer(second, reply_to=reply_to, reply_kind="list", response=b'{"n":0}', mode="again")
    assert [receipt.outcome for receipt in await bus.finish([again])] == [AnswerOutcome.SENT]
    assert await place.replies(reply_to, "list") == [b'{"n":0}', b'{"n":0}']
    assert [receipt.outcome for receipt in await bus.finish([both[1]])] == [AnswerOutcome.NOT_MINE]


async def lost_to_another(place: Place, **options: float) -> tuple[Bus, Bus, Delivery, Delivery]:
    """Return two workers' buses, and a delivery as the first lost it and the second claimed it."""
    one = await place.open("one", lease_seconds=SHORT, **options)
    two = await place.open("two", lease_seconds=SHORT, **options)
    await one.submit(b"1")
    (lost,) = await received(one)
    (claimed,) = await taken_over(two)
    return one, two, lost, claimed


async def forgotten(bus: Bus) -> bool:
    """Return whether the stored answer has expired."""
    return await bus.find_results([ASKED]) == [None]


async def test_zombie_sends_nothing(place: Place) -> None:
    """A worker that wakes up after another has answered sends nothing more."""
    one, two, lost, claimed = await lost_to_another(place)
    reply_to = f"{place.prefix}replies"

    (theirs,) = await two.finish([answer(claimed, reply_to=reply_to, reply_kind="list")])
    another = answer(lost, reply_to=reply_to, reply_kind="list", response=b'{"n":2}')
    (mine,) = await one.finish([another])

    assert (theirs.outcome, mine.outcome) == (AnswerOutcome.SENT, AnswerOutcome.NOT_MINE)
    assert len(await place.replies(reply_to, "list")) == 1


async def test_zombie_repeats_nothing(place: Place) -> None:
    """One that wakes up with a delivery that another has answered doesn't send that again."""
    one, two, lost, claimed = await lost_to_another(place)
    reply_to = f"{place.prefix}replies"
    await two.finish([answer(claimed, reply_to=reply_to, reply_kind="list")])

    late = answer(lost, reply_to=reply_to, reply_kind="list", mode="again")
    (mine,) = await one.finish([late])

    assert mine.outcome == AnswerOutcome.NOT_MINE
    assert len(await place.replies(reply_to, "list")) == 1


async def test_slow_worker_leaves_the_answer_to_the_claimer(place: Place) -> None:
    """Where another has claimed the delivery, only that one answers, even if it is slower."""
    one, two, lost, claimed = await lost_to_another(place)
    reply_to = f"{place.prefix}replies"

    (mine,) = await one.finish([answer(lost, reply_to=reply_to, reply_kind="list")])
    another = answer(claimed, reply_to=reply_to, reply_kind="list", response=b'{"n":2}')
    (theirs,) = await two.finish([another])

    assert (mine.outcome, theirs.outcome) == (AnswerOutcome.NOT_MINE, AnswerOutcome.SENT)
    assert await place.replies(reply_to, "list") == [b'{"n":2}']


@pytest.mark.parametrize("mode", ["first", "unstored", "again"])
async def test_zombie_sends_nothing_after_the_answer_expired(place: Place, mode: str) -> None:
    """A settled delivery stays settled for a worker that wakes up after the stored answer's end."""
    one, two, lost, claimed = await lost_to_another(place, result_ttl_seconds=SHORT)
    reply_to = f"{place.prefix}replies"
    await two.finish([answer(claimed, reply_to=reply_to, reply_kind="list")])
    await until(lambda: forgotten(two))
    await two.requests.trim()

    late = answer(lost, reply_to=reply_to, reply_kind="list", response=b'{"n":2}', mode=mode)
    (mine,) = await one.finish([late])

    assert mine.outcome == AnswerOutcome.NOT_MINE
    assert await place.replies(reply_to, "list") == [b'{"n":1}']
    assert await one.find_results([ASKED]) == [None]


async def test_unstored_answer_leaves_no_result(place: Place) -> None:
    """An error that may pass is sent and settles, but the next try is built again."""
    bus = await place.open("one", lease_seconds=0)
    reply_to = f"{place.prefix}replies"
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    passing = answer(delivery, reply_to=reply_to, reply_kind="list", mode="unstored")
    (receipt,) = await bus.finish([passing])

    assert receipt.outcome == AnswerOutcome.SENT
    assert await bus.find_results([ASKED]) == [None]
    assert len(await place.replies(reply_to, "list")) == 1
    assert await bus.requests.claim(10) == []


async def test_unstored_answer_yields_to_a_stored_one(place: Place) -> None:
    """An error never follows the answer."""
    bus = await place.open("one")
    reply_to = f"{place.prefix}replies"
    await bus.submit(b"1")
    await bus.submit(b"1")
    first, second = await received(bus)
    await bus.finish([answer(first)])

    passing = answer(second, reply_to=reply_to, reply_kind="list", mode="unstored")
    (receipt,) = await bus.finish([passing])

    assert receipt.outcome == AnswerOutcome.ANSWERED
    assert await place.replies(reply_to, "list") == []


@pytest.mark.parametrize("mode", ["unstored", "again"])
async def test_zombie_does_not_settle_for_others(place: Place, mode: str) -> None:
    """Only a first answer may end what another worker has in its hands."""
    one, two, lost, claimed = await lost_to_another(place)
    reply_to = f"{place.prefix}replies"

    late = answer(lost, reply_to=reply_to, reply_kind="list", mode=mode)
    (mine,) = await one.finish([late])

    assert mine.outcome == AnswerOutcome.NOT_MINE
    assert await place.replies(reply_to, "list") == []
    (theirs,) = await two.finish([answer(claimed)])
    assert theirs.outcome == AnswerOutcome.SENT


async def test_answer_may_go_to_the_dead_letter_too(place: Place) -> None:
    """A request given up is answered and kept in the dead letter, in one step."""
    bus = await place.open("one", lease_seconds=0)
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    await bus.finish([answer(delivery, dead_letter="tried 3 times")])

    (dead,) = await place.stream(place.prefix + Topics.CONTEXT_BUILD_DEAD)
    assert (dead["data"], dead["reason"]) == (b"1", b"tried 3 times")
    assert await bus.requests.claim(10) == []


async def test_taken_reply_key_does_not_stop_the_batch(place: Place) -> None:
    """A reply key that holds something else costs its own reply, and no other."""
    bus = await place.open("one", lease_seconds=0)
    reply_to = f"{place.prefix}replies"
    for number in range(3):
        await bus.submit(b"%d" % number)
    answers = [
        answer(each, identity=Identity("d", str(number)), reply_to=reply_to, reply_kind=kind)
        for number, (each, kind) in enumerate(
            zip(await received(bus), ["list", "stream", "list"], strict=True)
        )
    ]

    receipts = await bus.finish(answers)

    assert [receipt.outcome for receipt in receipts] == [AnswerOutcome.SENT] * 3
    assert len(await place.replies(reply_to, "list")) == 2
    assert await bus.requests.claim(10) == []


async def test_reply_that_is_refused_settles_all_the_same(place: Place) -> None:
    """A reply stream that takes no more costs its own reply: the answer is stored and settled."""
    bus = await place.open("one", lease_seconds=0)
    replies, spoiled = f"{place.prefix}replies", f"{place.prefix}spoiled"
    modes = ("first", "first", "unstored", "again")
    for mode in (*modes, "another"):
        await bus.submit(mode.encode())
    *deliveries, another = await received(bus)
    if isinstance(place, RedisPlace):  # no id is left for another entry
        largest = 2**64 - 1
        await place.client.xadd(spoiled, {"a": "b"}, id=f"{largest}-{largest}")
    else:  # no such thing can happen there: it is of another kind
        await bus.finish([answer(another, reply_to=spoiled, reply_kind="list", mode="again")])
    answers = [
        answer(
            each,
            identity=Identity("d", str(number)),
            reply_to=spoiled if number else replies,
            reply_kind="stream",
            mode=mode,
        )
        for number, (each, mode) in enumerate(zip(deliveries, modes, strict=True))
    ]

    receipts = await bus.finish(answers)

    assert [(each.outcome, each.receivers) for each in receipts] == [(AnswerOutcome.SENT, None)] * 4
    assert await place.replies(replies, "stream") == [b'{"n":1}']
    assert await bus.find_results([Identity("d", "1")]) != [None]
    await bus.requests.ack([another])
    assert await bus.requests.claim(10) == []


async def test_reply_stream_is_bounded(place: Place) -> None:
    """A stream of replies forgets the oldest."""
    bus = await place.open("one", reply_max_length=10)
    reply_to = f"{place.prefix}replies"
    for number in range(300):
        await bus.submit(b"%d" % number)
    answers = [
        answer(each, identity=Identity("d", each.token), reply_to=reply_to, reply_kind="stream")
        for each in await received(bus, 300)
    ]

    await bus.finish(answers)

    assert 10 <= len(await place.replies(reply_to, "stream")) < 300


async def test_large_answer_leaves_a_marker(place: Place) -> None:
    """An answer too large to keep is sent, and remembered as given."""
    bus = await place.open("one", result_max_bytes=80)
    reply_to = f"{place.prefix}replies"
    large = b'{"digits":"%b"}' % b"".join(b"%d" % (number**7) for number in range(100))
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    await bus.finish([answer(delivery, response=large, reply_to=reply_to, reply_kind="list")])

    assert await bus.find_results([ASKED]) == [StoredResult(fingerprint="f1", response=None)]
    assert await place.replies(reply_to, "list") == [large]


async def test_stored_answers_come_back_in_order(place: Place) -> None:
    """Stored answers come back as they were sent, where there are any, for the right owner."""
    bus = await place.open("one")
    odd = '{"text": "na\u00efve", "n": 1.0}'.encode()
    await bus.submit(b"1")
    (delivery,) = await received(bus)
    await bus.finish([answer(delivery, identity=Identity("db", "c"), response=odd)])

    found = await bus.find_results([Identity("d", "bc"), Identity("db", "c"), Identity("db", "d")])

    assert found == [None, StoredResult(fingerprint="f1", response=json.loads(odd)), None]
    assert await bus.find_results([]) == []


async def test_result_is_kept_for_a_while_only(place: Place) -> None:
    """A stored answer is gone when its time is over."""
    bus = await place.open("one", result_ttl_seconds=SHORT)
    await bus.submit(b"1")
    await bus.finish([answer((await received(bus))[0])])

    await until(lambda: forgotten(bus))


async def test_nothing_to_finish(place: Place) -> None:
    """No answers, no receipts."""
    bus = await place.open("one")

    assert await bus.finish([]) == []
    assert await bus.enqueue([]) == []


async def test_answers_that_go_together_fare_apart(place: Place) -> None:
    """Each of many gets its own outcome: one that is stored already, one of a mode, one unheard."""
    bus = await place.open("one", lease_seconds=0)
    reply_to = f"{place.prefix}replies"
    names = ["a", "b", "a", "c", "d"]
    for name in names:
        await bus.submit(name.encode())
    modes: list[AnswerMode] = ["first", "unstored", "first", "again", "first"]
    answers = [
        answer(
            each,
            identity=Identity("d", name),
            response=b'{"n":"%d"}' % number,
            reply_to=f"{reply_to}.{name}",
            mode=mode,
        )
        for number, (each, name, mode) in enumerate(
            zip(await received(bus), names, modes, strict=True)
        )
    ]
    async with bus.subscribe(f"{reply_to}.c") as heard:
        receipts = await bus.finish(answers)
        assert await anext(heard) == b'{"n":"3"}'

    sent, answered = (AnswerOutcome.SENT, 0), (AnswerOutcome.ANSWERED, None)
    reported = [(each.outcome, each.receivers) for each in receipts]
    assert reported == [sent, sent, answered, (AnswerOutcome.SENT, 1), sent]
    stored = await bus.find_results([Identity("d", name) for name in "abcd"])
    assert [each and each.response for each in stored] == [*({"n": "0"}, None, None), {"n": "4"}]
    (left,) = await bus.requests.claim(10)
    assert left.payload == b"a"
