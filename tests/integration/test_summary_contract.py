"""What every store of summaries promises, asked of each adapter."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from formatters.model import Summary
from service.ports.stores import Expected, Stores, rows_fingerprint
from tests.integration.conftest import OpenStore
from tests.stores import RECEIPT, Clock, Words
from tests.support import row


@pytest.fixture
async def pair(open_store: OpenStore) -> AsyncIterator[tuple[Stores, Stores]]:
    """Open a store twice, as two workers do; in memory both are the same."""
    async with open_store(Words) as first, open_store(Words) as second:
        yield first, second


@pytest.fixture
def stores(pair: tuple[Stores, Stores]) -> Stores:
    """Return a store of each kind."""
    return pair[0]


ROWS = [row(number, "HUMAN", f"words {number}") for number in range(6)]


async def summary(stores: Stores, ids: Sequence[str], name: str = "s", **fields: Any) -> Summary:
    """Return a summary of rows as they are stored."""
    made = {
        "id": name,
        "owner_key": "o",
        "text": "They said words.",
        "message_ids": tuple(ids),
        "first_timestamp": RECEIPT,
        "tokens": 3,
        "created": RECEIPT,
        "summarizer": "test",
        "fingerprint": rows_fingerprint(await stores.history.rows("o", ids)),
        **fields,
    }
    return Summary(**made)


def expected(last_id: str, rows: int, *summaries: str) -> Expected:
    """Return what has to be so still."""
    return Expected(summaries=frozenset(summaries), last_id=last_id, rows=rows)


async def test_summaries_come_back_in_their_order(stores: Stores) -> None:
    """A summary comes back equal, with those of its own scope only."""
    await stores.history.append("o", ROWS, conversation_id="c\0")
    first = await summary(stores, ["m0", "m1"], "b", last_timestamp=RECEIPT)
    second = await summary(stores, ["m2"], "a", text="字\nand more")
    other = await summary(stores, ["m0"], "c", conversation_id="c\0")

    assert await stores.summaries.put(first, expected("m1", 2))
    assert await stores.summaries.put(second, expected("m2", 3, "b"))
    assert await stores.summaries.put(other, expected("m0", 1))

    assert await stores.summaries.read("o") == [first, second]
    assert await stores.summaries.read("o") == [first, second]
    assert await stores.summaries.read("o", "c\0") == [other]
    assert await stores.summaries.read("o", "d") == []
    assert await stores.summaries.read("p") == []
    assert (await stores.summaries.read("o"))[0].covers == {"m0", "m1"}
    assert (await stores.history.recent("o")).total == 6


async def test_odd_characters_of_a_summary_come_back(pair: tuple[Stores, Stores]) -> None:
    """What one worker has put, another reads."""
    await pair[0].history.append("o", ROWS)
    made = await summary(pair[0], ["m0"], text="nul \0 \\0 \ud800 😀")

    assert await pair[0].summaries.put(made, expected("m0", 1))
    (read,) = await pair[1].summaries.read("o")
    assert read.text == "nul \0 \\0 \ufffd 😀"


async def test_a_summary_takes_the_place_of_others(stores: Stores) -> None:
    """What it replaces is gone in the same step."""
    await stores.history.append("o", ROWS)
    await stores.summaries.put(await summary(stores, ["m0"], "s1"), expected("m0", 1))
    await stores.summaries.put(await summary(stores, ["m1"], "s2"), expected("m1", 2, "s1"))
    both = await summary(stores, ["m0", "m1", "m2"], "s3")

    put = await stores.summaries.put(both, expected("m2", 3, "s1", "s2"), replaces=["s1", "s2"])

    assert put
    assert await stores.summaries.read("o") == [both]


async def test_nothing_is_put_where_something_changed(stores: Stores) -> None:
    """Another summary, a late row, other contents and rows that are gone: each is noticed."""
    await stores.history.append("o", ROWS)
    made = await summary(stores, ["m0", "m1"])
    late = row(0, "HUMAN", "late", id="late")

    put = stores.summaries.put
    assert not await put(made, expected("m1", 2, "other"))
    assert not await put(made, expected("m1", 3))
    assert not await put(made, expected("m9", 2))
    assert not await put(made, expected("m1", 0))
    assert not await put(replace(made, fingerprint="0"), expected("m1", 2))
    assert not await put(replace(made, message_ids=("m0", "m1", "gone")), expected("m1", 2))
    await stores.history.append("o", [late])
    assert not await put(made, expected("m1", 2))
    assert await stores.summaries.read("o") == []
    assert await put(made, expected("m1", 3))


async def test_summaries_go_with_their_owner(stores: Stores) -> None:
    """Who is erased has no summaries, and one that was being made is not put."""
    for owner in ("o", "p"):
        await stores.history.append(owner, ROWS)
    kept = await summary(stores, ["m0"], "p", owner_key="p")
    made = await summary(stores, ["m0"])
    await stores.summaries.put(kept, expected("m0", 1))
    await stores.summaries.put(made, expected("m0", 1))
    next_one = await summary(stores, ["m1"], "late")
    assert (await stores.history.stats("o")).summaries == 1

    await stores.history.erase("o")

    assert (await stores.history.stats("o")).summaries == 0
    assert (await stores.history.stats("p")).summaries == 1
    assert await stores.summaries.read("o") == []
    assert not await stores.summaries.put(next_one, expected("m1", 2, "s"))
    assert not await stores.summaries.put(next_one, expected("m1", 2))
    assert await stores.summaries.read("p") == [kept]


async def test_the_right_to_summarise_goes_with_the_owner(stores: Stores) -> None:
    """Nothing is left to summarise, and nobody waits for the former worker."""
    for owner in ("o", "p"):
        assert await stores.summaries.claim(owner, "one", 60)

    await stores.history.erase("o")

    assert await stores.summaries.claim("o", "other", 60)
    assert not await stores.summaries.claim("p", "other", 60)
    await stores.summaries.release("o", "one")
    assert not await stores.summaries.claim("o", "one", 60)


async def test_summaries_of_rows_that_go_are_forgotten(stores: Stores) -> None:
    """Removing rows deletes the summaries that cover any of them."""
    await stores.history.append("o", ROWS, conversation_id="c")
    await stores.summaries.put(await summary(stores, ["m0", "m1"], "s1"), expected("m1", 2))
    await stores.summaries.put(await summary(stores, ["m2"], "s2"), expected("m2", 3, "s1"))
    mine = await summary(stores, ["m1"], "s3", conversation_id="c")
    await stores.summaries.put(mine, expected("m1", 2))

    assert await stores.summaries.forget("o", ["m1", "m5"]) == 2
    assert await stores.summaries.forget("o", ["m1"]) == 0
    assert await stores.summaries.forget("p", ["m2"]) == 0

    assert [each.id for each in await stores.summaries.read("o")] == ["s2"]
    assert await stores.summaries.read("o", "c") == []


async def test_pruning_a_row_forgets_its_summary(stores: Stores) -> None:
    """No summary covers rows hidden by hand; others stay, also when these are restored."""
    await stores.history.append("o", ROWS)
    await stores.summaries.put(await summary(stores, ["m0", "m1"], "s1"), expected("m1", 2))
    await stores.summaries.put(await summary(stores, ["m2"], "s2"), expected("m2", 3, "s1"))
    next_one = await summary(stores, ["m3", "m4"], "s3")

    await stores.history.prune("o", ["m1"])

    assert [each.id for each in await stores.summaries.read("o")] == ["s2"]
    assert not await stores.summaries.put(next_one, expected("m4", 5, "s2"))
    assert await stores.summaries.put(next_one, expected("m4", 4, "s2"))
    await stores.history.restore("o", ["m1"])
    assert [each.id for each in await stores.summaries.read("o")] == ["s2", "s3"]


async def test_one_at_a_time_summarises_an_owner(pair: tuple[Stores, Stores], clock: Clock) -> None:
    """The right is one worker's until it is given back or its time is over."""
    first, second = (stores.summaries for stores in pair)

    assert await first.claim("o", "a", 10)
    assert await first.claim("o", "a", 10)
    assert not await second.claim("o", "b", 10)
    assert await second.claim("p", "b", 10)
    await second.release("o", "b")
    assert not await second.claim("o", "b", 10)
    await first.release("o", "a")
    assert await second.claim("o", "b", 10)
    clock.now += timedelta(seconds=10)
    assert await first.claim("o", "a", 10)
    await second.release("o", "b")
    assert not await second.claim("o", "b", 10)


async def test_of_two_that_put_at_once_one_does(pair: tuple[Stores, Stores]) -> None:
    """Two workers with the same expectation: exactly one summary is kept."""
    await pair[0].history.append("o", ROWS)
    made = [await summary(pair[0], ["m0", "m1"], name) for name in ("first", "second")]

    async with asyncio.TaskGroup() as tasks:
        puts = [
            tasks.create_task(stores.summaries.put(each, expected("m1", 2)))
            for stores, each in zip(pair, made, strict=True)
        ]

    assert sorted(put.result() for put in puts) == [False, True]
    assert len(await pair[1].summaries.read("o")) == 1


async def test_older_stretches_come_first(stores: Stores) -> None:
    """Whenever they were put: the oldest is to give way first."""
    await stores.history.append("o", ROWS)
    newer, older = await summary(stores, ["m3"], "n"), await summary(stores, ["m0", "m1"], "o")

    assert await stores.summaries.put(newer, expected("m3", 4))
    assert await stores.summaries.put(older, expected("m1", 2, "n"))
    assert await stores.summaries.read("o") == [older, newer]


async def test_a_row_that_is_pruned_meanwhile_is_not_covered(stores: Stores) -> None:
    """Also where another change makes up for its place."""
    await stores.history.append("o", ROWS)
    await stores.history.prune("o", ["m0"])
    made = await summary(stores, ["m1", "m2"])
    await stores.history.prune("o", ["m1"])
    await stores.history.restore("o", ["m0"])

    assert not await stores.summaries.put(made, expected("m2", 2))
    assert await stores.summaries.read("o") == []
