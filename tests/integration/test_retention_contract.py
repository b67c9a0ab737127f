"""What every store promises of rows and copies that have grown too old, asked of each adapter."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formatters.model import Row, Summary
from service.ports.stores import (
    Archiving,
    Expected,
    HistoryPage,
    HistoryStats,
    Stores,
    rows_fingerprint,
)
from tests.integration.conftest import OpenStore
from tests.integration.test_store_contract import NOTHING, at, ids, row, stores
from tests.stores import RECEIPT, Clock, Words

__all__ = ["stores"]  # a fixture

ODD: Final = 'b\\\0"'


def minute(number: int) -> datetime:
    """Return the moment that `at` returns as text."""
    return datetime(2025, 1, 1, 10, number, tzinfo=UTC)


async def drained(stores: Stores, before: datetime, limit: int = 2) -> int:
    """Let rows expire until there are none; returns how many did."""
    gone = 0
    while some := await stores.history.expire(before, limit):
        assert some <= limit
        gone += some
    return gone


async def test_old_rows_go_and_no_others(stores: Stores) -> None:
    """The oldest of every owner, those from the moment itself on stay."""
    for owner in "op":
        rows = [row(str(n), at(n), conversation_id="xy"[n % 2]) for n in range(7)]
        await stores.history.append(owner, rows[::-1])

    assert await stores.history.expire(minute(0), 9) == 0
    assert await stores.history.expire(minute(3), 0) == 0
    assert await stores.history.expire(minute(3), 1) == 1
    assert await drained(stores, minute(3)) == 5
    assert await stores.history.expire(minute(3), 2**80) == 0

    for owner in "op":
        page = await stores.history.recent(owner)
        assert (ids(page), page.total) == ("6 5 4 3", 4)
        page = await stores.history.recent(owner, "y", max_tokens=2)
        assert (ids(page), page.total) == ("5", 2)
        assert await stores.history.stats(owner) == HistoryStats(rows=4, tokens=8)
        assert await stores.history.rows(owner, ["2", "3"]) == [
            row("3", at(3), conversation_id="y")
        ]


async def test_pruned_rows_go_as_well(stores: Stores) -> None:
    """They are hidden, not kept for ever; nothing of them can be restored."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(6)])
    await stores.history.prune("o", ["0", "1", "4"])

    assert await drained(stores, minute(2)) == 2

    assert await stores.history.stats("o") == HistoryStats(rows=3, tokens=6, pruned=1)
    assert await stores.history.restore("o", ["0", "1", "4"]) == 1
    page = await stores.history.recent("o", max_tokens=5)
    assert (ids(page), page.total) == ("5 4 3", 4)


async def test_marks_go_with_their_rows_and_copies_stay(stores: Stores, clock: Clock) -> None:
    """A copy has a time of its own: that of its archiving."""
    await stores.history.append("o", [row("a", at(1)), row(ODD, at(2)), row("c", at(3))])
    await stores.history.append("p", [row("a", at(9))])
    for owner, names in (("o", ["a", ODD, "c"]), ("p", ["a"])):
        note = Archiving(reasons=dict.fromkeys(names, "older"), run_id="r", build_id="b")
        await stores.history.flag_fallen(owner, names, archiving=note)

    assert await stores.history.expire(minute(5), 2**80) == 3

    assert await stores.history.stats("o") == HistoryStats(archived=3)
    assert await stores.history.stats("p") == HistoryStats(rows=1, tokens=2, fallen=1, archived=1)
    clock.now += timedelta(hours=1)
    assert await stores.history.expire_archive(RECEIPT, 9) == 0
    assert await stores.history.expire_archive(clock.now, 2) == 2
    assert await stores.history.expire_archive(clock.now, 2**80) == 2
    assert await stores.history.expire_archive(clock.now, 9) == 0
    for owner in "op":
        assert await stores.history.archived(owner, 9) == []
    assert (await stores.history.recent("p")).total == 1
    await stores.history.append("o", [row(ODD, at(8))])
    assert await stores.history.flag_fallen("o", [ODD]) == [ODD]


async def put_summary(stores: Stores, names: Sequence[str], place: int, *others: str) -> bool:
    """Put a summary of rows up to the n-th, with others."""
    summary = Summary(
        id=f"of {names[-1]}",
        owner_key="o",
        text="They said words.",
        message_ids=tuple(names),
        first_timestamp=minute(1),
        last_timestamp=minute(1),
        tokens=3,
        created=RECEIPT,
        summarizer="test",
        fingerprint=rows_fingerprint(await stores.history.rows("o", names)),
    )
    expected = Expected(summaries=frozenset(others), last_id=names[-1], rows=place)
    return await stores.summaries.put(summary, expected)


async def test_summaries_go_with_what_they_cover(stores: Stores) -> None:
    """One that covers a row which is gone goes whole, whatever the row is called."""
    names = ["a", ODD, "c", "d", "e", "f"]
    rows = [row(name, at(number)) for number, name in enumerate(names)]
    await stores.history.append("o", rows)
    assert await put_summary(stores, ["a"], 1)
    assert await put_summary(stores, [ODD, "c"], 3, "of a")
    assert await put_summary(stores, ["d"], 4, "of a", "of c")

    assert await stores.history.expire(minute(1), 9) == 1
    assert [each.id for each in await stores.summaries.read("o")] == ["of c", "of d"]
    assert await stores.history.expire(minute(2), 9) == 1
    assert [each.id for each in await stores.summaries.read("o")] == ["of d"]


async def test_summaries_count_the_rows_that_are_left(stores: Stores) -> None:
    """A new one is where its last row is now, not where it was."""
    await stores.history.append("o", [row(str(n), at(n), conversation_id="x") for n in range(6)])
    assert await drained(stores, minute(2)) == 2

    assert not await put_summary(stores, ["2", "3"], 4)
    assert await put_summary(stores, ["2", "3"], 2)


async def test_a_history_begins_again_when_all_is_gone(stores: Stores, clock: Clock) -> None:
    """A row without a time is as old as its receipt, and rows of old ids are new ones."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(3)])
    assert await drained(stores, minute(9)) == 3
    assert await stores.history.recent("o") == NOTHING

    assert await stores.history.append("o", [row("1"), row("2")]) == 2
    early, late = clock.now - timedelta(seconds=1), clock.now + timedelta(seconds=1)
    await stores.history.append("o", [row("late", late), row("early", early)])

    page = await stores.history.recent("o", max_tokens=8)
    assert (ids(page), page.total) == ("late 2 1 early", 4)


async def test_late_rows_find_their_place_before_what_is_left(stores: Stores) -> None:
    """One that is older than all that is left, and one among the oldest."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(2, 9, 2)])
    assert await drained(stores, minute(5)) == 2

    await stores.history.append("o", [row("5", at(5)), row("7", at(7))])

    page = await stores.history.recent("o", max_tokens=7)
    assert (ids(page), page.total) == ("8 7 6 5", 4)
    assert ids(await stores.history.recent("o", max_tokens=5)) == "8 7 6"


async def test_what_is_left_is_where_it_stood(stores: Stores) -> None:
    """Windows begin at the same rows as before, though what was before them is gone."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(8)], conversation_id="x")
    await stores.history.prune("o", ["1"])
    assert await drained(stores, minute(4)) == 4

    await stores.history.append("o", [row("8", at(8))], conversation_id="x")
    for conversation in (None, "x"):
        page = await stores.history.recent("o", conversation)
        assert (ids(page), page.starts) == ("8 7 6 5 4", (14, 12, 10, 8, 6))


async def test_rows_expire_next_to_those_that_come(stores: Stores) -> None:
    """Old and new rows stored while others expire: what is left counts right."""

    async def write(name: str) -> None:
        for n in range(30):
            await stores.history.append(name[0], [row(f"{name}{n}", at(n))], conversation_id=name)

    async def expire() -> None:
        for _ in range(30):
            await stores.history.expire(minute(20), 3)

    async with asyncio.TaskGroup() as tasks:
        for name in ("ox", "oy", "px"):
            tasks.create_task(write(name))
        for _ in range(2):
            tasks.create_task(expire())
    await drained(stores, minute(20), limit=50)

    for owner, rows in (("o", 20), ("p", 10)):
        page = await stores.history.recent(owner, max_tokens=2 * rows)
        assert page.total == len(page.rows) == rows
        assert len((await stores.history.recent(owner, max_tokens=2 * rows - 2)).rows) == rows - 1
        assert (await stores.history.recent(owner, f"{owner}x")).total == 10


# --- the law ---------------------------------------------------------------------------------

NAMES = st.integers(0, 15).map(str)
ROWS = st.builds(
    row,
    NAMES,
    st.none() | st.integers(0, 6).map(at),
    st.integers(0, 3).map(lambda words: "w " * words),
    role=st.sampled_from(["HUMAN", "TOOL"]),
    conversation_id=st.sampled_from([None, "x", "y"]),
)


@dataclass(frozen=True)
class Append:
    """Store rows."""

    rows: list[Row]


@dataclass(frozen=True)
class Hide:
    """Prune rows, or show them again."""

    names: list[str]
    pruned: bool


@dataclass(frozen=True)
class Expire:
    """Let rows of before a minute expire, at most n."""

    minute: int
    limit: int


STEPS = st.lists(
    st.builds(Append, st.lists(ROWS, min_size=1, max_size=6))
    | st.builds(Hide, st.lists(NAMES, max_size=4), st.booleans())
    | st.builds(Expire, st.integers(0, 7), st.integers(0, 5)),
    max_size=8,
)


@pytest.fixture
def lasting(open_store: OpenStore) -> Iterator[tuple[asyncio.Runner, Stores]]:
    """Open a store for all examples of a test, with the loop that it lives in."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        yield runner, runner.run(stack.enter_async_context(open_store(Words)))
        runner.run(stack.aclose())


async def readings(stores: Stores, owner: str) -> list[object]:
    """Return all that can be read of an owner: pages under every bound, and the counts."""
    found: list[object] = [await stores.history.stats(owner)]
    for conversation in (None, "x", "y"):
        for bound in (None, 1, 4, 9):
            page = await stores.history.recent(owner, conversation, max_tokens=bound)
            found.append((ids(page), page.total))
        page = await stores.history.recent(owner, conversation, max_rows=2)
        found.append((ids(page), page.total))
    return found


async def take(stores: Stores, step: Append | Hide | Expire) -> None:
    """Do what a step says."""
    history = stores.history
    match step:
        case Append(rows):
            await history.append("o", rows)
        case Hide(names, pruned):
            await (history.prune if pruned else history.restore)("o", names)
        case Expire(number, limit):
            await history.expire(minute(number), limit)


async def assert_as_if_never_there(stores: Stores, steps: Sequence[object], fresh: str) -> None:
    """Take steps, and compare what is left with a history that never had the other rows."""
    for step in steps:
        assert isinstance(step, Append | Hide | Expire)
        await take(stores, step)
    reported = await readings(stores, "o")

    shown = {each["id"] for each in (await stores.history.recent("o")).rows}
    await stores.history.restore("o", [str(number) for number in range(16)])
    left: HistoryPage = await stores.history.recent("o")
    again = [{**each, "timestamp": at(n)} for n, each in enumerate(left.rows[::-1])]
    await stores.history.append(fresh, again)
    await stores.history.prune(
        fresh, [str(each["id"]) for each in again if each["id"] not in shown]
    )

    assert reported == await readings(stores, fresh)
    for owner in ("o", fresh):
        await stores.history.erase(owner)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(steps=STEPS)
def test_what_is_left_is_as_if_the_rest_had_never_been(
    lasting: tuple[asyncio.Runner, Stores], steps: list[Append | Hide | Expire]
) -> None:
    """Whatever is stored, hidden and shown between: totals and bounds are those of the rows."""
    runner, stores = lasting
    runner.run(assert_as_if_never_there(stores, steps, f"fresh {next(_numbers)}"))


_numbers = itertools.count()
