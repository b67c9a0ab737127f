"""What every store promises, asked of each adapter."""

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import cast

import pytest

from formatters.model import Row
from service.errors import InvalidRequestError
from service.ports.stores import ArchivedRow, Archiving, HistoryPage, HistoryStats, Stores
from tests.integration.conftest import OpenStore
from tests.stores import RECEIPT, Clock, Words

NOTHING = HistoryPage(rows=[])


@pytest.fixture
async def stores(open_store: OpenStore) -> AsyncIterator[Stores]:
    """Open an empty store of each kind."""
    async with open_store(Words) as opened_stores:
        yield opened_stores


def row(name: str, when: object = None, content: object = "one two", **fields: object) -> Row:
    """Make a row of history."""
    return {
        "id": name,
        "run_id": "run_1",
        "role": "HUMAN",
        "content": content,
        "timestamp": when,
        "metadata": {},
        **fields,
    }


def at(minute: int) -> str:
    """Return a moment of one day as text."""
    return f"2025-01-01T10:{minute:02}:00Z"


def ids(page: HistoryPage) -> str:
    """Return the ids of a page's rows, newest first."""
    return " ".join(str(row["id"]) for row in page.rows)


# --- append ----------------------------------------------------------------------------------


async def test_rows_come_back_as_they_were_given(stores: Stores) -> None:
    """A row comes back equal, with its conversation where it has one."""
    first = row("a", at(1), [{"type": "text", "text": "hi"}], metadata={"tool_calls": [1.5, None]})
    second = row("b", at(2), None, run_id=None, role=None, metadata=None)

    await stores.history.append("o", [first])
    await stores.history.append("o", [second], conversation_id="c")

    page = await stores.history.recent("o")
    rows = [{**second, "conversation_id": "c"}, first]
    # what is said takes a word, the overhead of a message 4, and a call that can't be read none
    assert page == HistoryPage(rows=rows, total=2, starts=(1, 0), native_starts=(5, 0))


async def test_append_is_idempotent_by_id(stores: Stores) -> None:
    """A row that is stored already stays as it is, and is not counted as new."""
    assert await stores.history.append("o", [row("a", at(1), "first"), row("b", at(2))]) == 2

    again = [row("c", at(3)), row("a", at(9), "second"), row("c", at(4), "third")]
    assert await stores.history.append("o", again, conversation_id="c") == 1

    page = await stores.history.recent("o")
    assert ids(page) == "c b a"
    assert page.rows[0]["content"] == "one two"
    assert page.rows[2]["content"] == "first"


async def test_rows_are_found_by_their_ids(stores: Stores) -> None:
    """They come in the order of the ids, whatever the conversation; unknown ids are left out."""
    odd = 'b\\\0"'
    first = [row("a", at(1)), row(odd, at(2)), row("c", at(3))]
    await stores.history.append("o", first, conversation_id="x")
    await stores.history.append("other", [row("d", at(4))])

    found = await stores.history.rows("o", ["c", "missing", "d", odd, "a"])

    assert [each["id"] for each in found] == ["c", odd, "a"]
    assert found[0]["conversation_id"] == "x"
    assert await stores.history.rows("o", []) == []
    assert await stores.history.rows("nobody", ["a"]) == []


async def test_pruned_rows_can_be_left_out(stores: Stores) -> None:
    """Rows that were hidden by hand are returned only on request."""
    await stores.history.append("o", [row("a", at(1)), row("b", at(2))])
    await stores.history.prune("o", ["a"])

    assert len(await stores.history.rows("o", ["a", "b"])) == 2
    (found,) = await stores.history.rows("o", ["a", "b"], pruned=False)
    assert found["id"] == "b"


@pytest.mark.parametrize(
    ("conversation", "name", "before", "after", "expected"),
    [
        (None, "m4", 2, 1, "m2 m3 m4 m5"),
        (None, "m0", 2, 0, "m0"),
        (None, "m9", 9, 9, "m0 m2 m3 m4 m5 m6 m7 m8 m9"),
        ("even", "m4", 1, 2, "m2 m4 m6 m8"),
        ("odd", "m4", 1, 1, ""),
        (None, "m1", 1, 1, ""),
        (None, "nobody", 1, 1, ""),
        ("nowhere", "m4", 1, 1, ""),
    ],
)
async def test_rows_around_one_come_in_their_order(
    stores: Stores, conversation: str | None, name: str, before: int, after: int, expected: str
) -> None:
    """Oldest first, within the conversation, without pruned rows; nothing around what isn't there.

    Of two rows of one moment, the one that arrived first is first.
    """
    talk = [row(f"m{n}", at(n), conversation_id=("even", "odd")[n % 2]) for n in range(9)]
    last = row("m9", at(8), conversation_id="odd")
    await stores.history.append("o", [*talk[::-1], last])
    await stores.history.append("other", [row("m4", at(2))])
    await stores.history.prune("o", ["m1"])

    found = await stores.history.around("o", conversation, name, before=before, after=after)

    assert " ".join(str(each["id"]) for each in found) == expected
    assert await stores.history.around("nobody", None, "m4", before=1, after=1) == []


async def test_many_rows_are_found_at_once(stores: Stores) -> None:
    """More ids than a statement takes are no hindrance."""
    names = [f"m{number}" for number in range(1_200)]
    await stores.history.append("o", [row(name) for name in names])

    assert [each["id"] for each in await stores.history.rows("o", names)] == names


async def test_append_of_nothing_stores_nothing(stores: Stores) -> None:
    """No rows are no rows."""
    assert await stores.history.append("o", []) == 0
    assert await stores.history.recent("o") == NOTHING


async def test_a_rows_own_conversation_goes_first(stores: Stores) -> None:
    """The argument is for rows that name no conversation."""
    rows = [row("a", at(1), conversation_id="x"), row("b", at(2), conversation_id=None)]
    await stores.history.append("o", rows, conversation_id="y")

    assert ids(await stores.history.recent("o", "x")) == "a"
    assert ids(await stores.history.recent("o", "y")) == "b"


async def test_a_callers_row_is_not_shared(stores: Stores) -> None:
    """What happens to a row outside does not reach the one that is stored."""
    metadata: dict[str, object] = {"n": 1}
    await stores.history.append("o", [row("a", at(1), metadata=metadata)])
    metadata["n"] = 2
    read = (await stores.history.recent("o")).rows[0]
    cast(dict[str, object], read["metadata"])["n"] = 3

    assert (await stores.history.recent("o")).rows[0]["metadata"] == {"n": 1}


@pytest.mark.parametrize(
    ("bad", "pointer"),
    [
        (row(""), "/1/id"),
        (row("x" * 257), "/1/id"),
        (row("a", id=7), "/1/id"),
        ({"role": "HUMAN", "content": "hi"}, "/1/id"),
        ("a row", "/1"),
        (None, "/1"),
        (row("a", conversation_id=""), "/1/conversation_id"),
        (row("a", conversation_id=5), "/1/conversation_id"),
        (row("a", at(1), object()), "/1"),
        (row("a", at(1), metadata={(1, 2): "tuple"}), "/1"),
        (row("a", at(1), metadata={"score": [math.nan]}), "/1"),
        (row("a", at(1), metadata={"score": -math.inf}), "/1"),
    ],
)
async def test_a_bad_row_is_refused_with_its_place(
    stores: Stores, bad: object, pointer: str
) -> None:
    """One bad row of a batch is named, and nothing of the batch is stored."""
    with pytest.raises(InvalidRequestError) as caught:
        await stores.history.append("o", cast(list[Row], [row("good"), bad]))

    assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert (await stores.history.recent("o")).total == 0


async def test_a_row_nested_too_deep_is_refused(stores: Stores) -> None:
    """What no reader could read again is not stored."""
    deep: object = "core"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InvalidRequestError, match="deeper"):
        await stores.history.append("o", [row("a", at(1), deep)])


async def test_the_longest_ids_are_stored(stores: Stores) -> None:
    """Ids of 256 characters and owner keys of 128 are stored, whatever the characters."""
    await stores.history.append("😀" * 128, [row("é" * 256)], conversation_id="c" * 256)
    assert (await stores.history.recent("😀" * 128, "c" * 256)).total == 1


@pytest.mark.parametrize("owner", ["", "x" * 129, "\ud83d", cast(str, None)])
async def test_an_owner_key_that_names_nobody_is_refused(stores: Stores, owner: str) -> None:
    """Empty, too long and unprintable keys are refused by every method."""
    for call in (
        stores.history.append(owner, [row("a")]),
        stores.history.recent(owner),
        stores.history.get_history(owner, 1),
        stores.history.erase(owner),
        stores.history.flag_fallen(owner, ["a"]),
        stores.history.archived(owner, 1),
        stores.history.prune(owner, ["a"]),
        stores.history.restore(owner, ["a"]),
        stores.history.stats(owner),
        stores.profiles.get(owner),
        stores.profiles.put(owner, {}),
    ):
        with pytest.raises(InvalidRequestError, match="owner_key"):
            await call


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\ud83d b", "a\ufffd b"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("nul \0 \x1f \\u0000 \x7f \u2028", "nul \0 \x1f \\u0000 \x7f \u2028"),
        ("👩\u200d👩\u200d👧 \u202eabc", "👩\u200d👩\u200d👧 \u202eabc"),
        ({"\ud800": ["\udfff"]}, {"\ufffd": ["\ufffd"]}),
    ],
)
async def test_odd_characters_survive(stores: Stores, content: object, expected: object) -> None:
    """Lone surrogates are replaced, pairs joined, and every other character kept."""
    await stores.history.append("o", [row("a", at(1), content)])
    assert (await stores.history.recent("o")).rows[0]["content"] == expected


async def test_odd_characters_keep_ids_apart(stores: Stores) -> None:
    """A NUL or a backslash in an id, a conversation or an owner key makes no two of them one."""
    names = ["a\0", "a\\0", "a\\\\0", "a", "a ", "A", "ä", "a\u0308"]
    for name in names:
        rows = [row(other, at(1), conversation_id=other) for other in names]
        assert await stores.history.append(name, rows) == len(names)

    for name in names:
        assert (await stores.history.recent(name)).total == len(names)
        assert [row["id"] for row in (await stores.history.recent("a\0", name)).rows] == [name]


async def test_a_huge_content_survives(stores: Stores) -> None:
    """A content of a megabyte comes back, and does not hide its neighbours."""
    huge = "word " * 210_000
    rows = [row("a", at(1)), row("b", at(2), huge), row("c", at(3))]
    await stores.history.append("o", rows)

    assert (await stores.history.recent("o")).rows == rows[::-1]


# --- order -----------------------------------------------------------------------------------


async def test_rows_are_ordered_by_time_then_arrival(stores: Stores) -> None:
    """Rows come newest first; of equal times the one that arrived last."""
    rows = [row("c", at(3)), row("a", at(1)), row("b1", at(2)), row("b2", at(2))]
    await stores.history.append("o", rows)
    await stores.history.append("o", [row("b3", at(2)), row("z", at(0))])

    assert ids(await stores.history.recent("o")) == "c b3 b2 b1 a z"


async def test_times_are_compared_as_moments(stores: Stores) -> None:
    """Offsets count, naive is UTC, and datetimes come back as text."""
    east = datetime(2025, 1, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))
    rows = [
        row("d", "2025-01-01T11:00:00.000002+00:00"),
        row("c", "2025-01-01T11:00:00.000001"),
        row("b", east),
        row("a", datetime(2025, 1, 1, 10)),  # noqa: DTZ001 - a naive one is meant
    ]
    await stores.history.append("o", rows)

    page = await stores.history.recent("o")
    assert ids(page) == "d c b a"
    assert page.rows[2]["timestamp"] == "2025-01-01T12:30:00+02:00"
    assert page.rows[3]["timestamp"] == "2025-01-01T10:00:00"


@pytest.mark.parametrize("odd", [None, "", "yesterday", 1735725600, {}, "2025-13-01T00:00:00Z"])
async def test_a_row_without_a_time_follows_the_one_before_it(stores: Stores, odd: object) -> None:
    """In a batch, a time that cannot be read is that of the row before; it comes back as given."""
    await stores.history.append("o", [row("a", at(1)), row("b", odd), row("d", at(3))])
    await stores.history.append("o", [row("c", at(2))])

    page = await stores.history.recent("o")
    assert ids(page) == "d c b a"
    assert page.rows[2]["timestamp"] == odd


async def test_rows_before_the_first_time_precede_it(stores: Stores, clock: Clock) -> None:
    """A batch keeps its order, also if it begins without times and goes on in the past."""
    await stores.history.append("o", [row("a"), row("b"), row("c", at(1)), row("d")])
    await stores.history.append("o", [row("e"), row("f", clock.now)])

    assert ids(await stores.history.recent("o")) == "f e d c b a"


async def test_a_batch_without_times_follows_the_newest_row(stores: Stores) -> None:
    """The first of a batch follows the newest row that is stored, of any conversation."""
    await stores.history.append("o", [row("late", at(30)), row("early", at(1))])
    await stores.history.append("o", [row("a"), row("b")], conversation_id="c")
    await stores.history.append("o", [row("later", at(31))])

    assert ids(await stores.history.recent("o")) == "later b a late early"


async def test_the_first_row_without_a_time_has_the_receipts(stores: Stores, clock: Clock) -> None:
    """Where nothing is stored yet, the time of the receipt counts."""
    await stores.history.append("o", [row("now")])
    before, after = clock.now - timedelta(seconds=1), clock.now + timedelta(seconds=1)
    await stores.history.append("o", [row("after", after), row("before", before)])

    assert ids(await stores.history.recent("o")) == "after now before"


# --- recent ----------------------------------------------------------------------------------


async def test_a_page_reports_what_precedes_its_rows(stores: Stores) -> None:
    """Tokens of all rows before one, by scope: the same in every page, however much that holds."""
    for n in range(4):
        await stores.history.append("o", [row(str(n), at(n))], conversation_id="xy"[n % 2])
    await stores.history.append("o", [row("tool", at(9), role="TOOL"), row("4", at(10))])

    assert (await stores.history.recent("o")).starts == (8, 8, 6, 4, 2, 0)
    assert (await stores.history.recent("o", max_rows=3)).starts == (8, 8, 6)
    assert (await stores.history.recent("o", max_tokens=3)).starts == (8, 8, 6)
    assert (await stores.history.recent("o", "y")).starts == (2, 0)


async def test_native_messages_count_calls_and_results_too(stores: Stores) -> None:
    """The text before a row leaves them out, and cuts long messages."""
    calls = {"tool_calls": [{"id": "c", "name": "look up", "arguments": {"a": 1}}]}
    rows = [
        row("long", at(0), "word " * 600),
        row("calls", at(1), "", role="AI", metadata=calls),
        row("result", at(2), "of three words", role="TOOL", metadata={"tool_call_id": "c"}),
        row("note", at(3), "no message", role="SYSTEM"),
        row("last", at(4)),
    ]
    await stores.history.append("o", rows[:2], conversation_id="x")
    await stores.history.append("o", rows[2:], conversation_id="x")

    # a name of two words, and arguments of two
    after_long, after_calls = 600 + 4, 600 + 4 + 4 + 4
    reported = (after_calls + 4 + 3, after_calls + 4 + 3, after_calls, after_long, 0)
    for conversation in (None, "x"):
        page = await stores.history.recent("o", conversation)
        assert page.native_starts == reported
        assert page.starts == (100, 100, 100, 100, 0)

    await stores.history.prune("o", ["calls"])
    page = await stores.history.recent("o")
    assert page.native_starts == (after_long + 4 + 3, after_long + 4 + 3, after_long, 0)
    await stores.history.restore("o", ["calls"])
    await stores.history.expire(datetime(2025, 1, 1, 10, 1, tzinfo=UTC), 1)
    assert (await stores.history.recent("o")).native_starts == reported[:-1]


async def test_what_precedes_rows_changes_with_what_is_pruned(stores: Stores) -> None:
    """Pruned rows count nothing, until they are restored; those before them stay where they are."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(4)])

    await stores.history.prune("o", ["1"])
    assert (await stores.history.recent("o")).starts == (4, 2, 0)

    await stores.history.restore("o", ["1"])
    assert (await stores.history.recent("o")).starts == (6, 4, 2, 0)


async def test_max_rows_bounds_a_page(stores: Stores) -> None:
    """At most n rows are read; the total is of all."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(5)])

    assert ids(await stores.history.recent("o", max_rows=2)) == "4 3"
    assert (await stores.history.recent("o", max_rows=2)).total == 5
    for none in (0, -1):
        assert await stores.history.recent("o", max_rows=none) == HistoryPage(rows=[], total=5)


@pytest.mark.parametrize(
    ("max_tokens", "expected"), [(-1, ""), (0, ""), (1, "4"), (2, "4"), (3, "4 3"), (4, "4 3")]
)
async def test_max_tokens_is_reached_by_the_last_row(
    stores: Stores, max_tokens: int, expected: str
) -> None:
    """Reading stops with the row at which the tokens reach the bound, that row included."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(5)])

    page = await stores.history.recent("o", max_tokens=max_tokens)
    assert ids(page) == expected
    assert page.total == 5


async def test_both_bounds_hold(stores: Stores) -> None:
    """The tighter of two bounds ends the page."""
    await stores.history.append("o", [row(str(n), at(n)) for n in range(5)])

    assert ids(await stores.history.recent("o", max_rows=1, max_tokens=6)) == "4"
    assert ids(await stores.history.recent("o", max_rows=4, max_tokens=3)) == "4 3"


async def test_bounds_beyond_all_numbers_bound_nothing(stores: Stores) -> None:
    """Bounds and times of any size are taken as far as a database can count."""
    beyond = 10**30
    rows = [row("last", "9999-12-31T23:59:59.999999Z"), row("first", "0001-01-01T00:00:00Z")]
    await stores.history.append("o", rows)

    assert ids(await stores.history.recent("o", max_rows=beyond, max_tokens=beyond)) == "last first"
    assert ids(await stores.history.recent("o", max_rows=-beyond)) == ""
    assert ids(await stores.history.recent("o", max_tokens=-beyond)) == ""
    assert await stores.history.archived("o", beyond) == []


async def test_tokens_are_those_that_are_printed(stores: Stores) -> None:
    """Tool rows count nothing, and a long text counts as its first 500 characters."""
    rows = [
        row("oldest", at(0)),
        row("long", at(1), "ab " * 1000),  # 166 words in 497 characters, the last with "..."
        row("tool", at(2), "many words " * 50, role="TOOL"),
        row("newest", at(3), [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]),
    ]
    await stores.history.append("o", rows)

    assert ids(await stores.history.recent("o", max_tokens=3)) == "newest"
    assert ids(await stores.history.recent("o", max_tokens=4)) == "newest tool long"
    assert ids(await stores.history.recent("o", max_tokens=169)) == "newest tool long"
    assert ids(await stores.history.recent("o", max_tokens=170)) == "newest tool long oldest"


async def test_conversations_are_apart(stores: Stores) -> None:
    """A conversation has its own rows, bounds and total; no conversation has all."""
    await stores.history.append("o", [row(f"a{n}", at(n)) for n in range(3)], conversation_id="a")
    await stores.history.append("o", [row(f"b{n}", at(n)) for n in range(2)], conversation_id="b")
    await stores.history.append("o", [row("none", at(9))])

    assert ids(await stores.history.recent("o")) == "none a2 b1 a1 b0 a0"
    assert ids(await stores.history.recent("o", "a")) == "a2 a1 a0"
    page = await stores.history.recent("o", "b", max_tokens=2)
    assert (ids(page), page.total) == ("b1", 2)
    assert await stores.history.recent("o", "unknown") == NOTHING


async def test_owners_are_apart(stores: Stores) -> None:
    """The same ids and conversations of another owner are other rows."""
    for owner in ("o", "O", "o "):
        assert await stores.history.append(owner, [row("a", at(1), owner)], conversation_id="c")

    for owner in ("o", "O", "o "):
        page = await stores.history.recent(owner, "c")
        assert [row["content"] for row in page.rows] == [owner]
    assert await stores.history.recent("x") == NOTHING


async def test_get_history_is_the_newest_of_all_conversations(stores: Stores) -> None:
    """The plain form gives at most n rows, newest first."""
    await stores.history.append("o", [row("a", at(1))], conversation_id="x")
    await stores.history.append("o", [row("b", at(2)), row("c", at(3))])

    assert [row["id"] for row in await stores.history.get_history("o", 2)] == ["c", "b"]
    assert await stores.history.get_history("x", 2) == []


# --- erase and profiles ----------------------------------------------------------------------


async def test_erase_forgets_one_owner(stores: Stores) -> None:
    """An erased owner has no rows, may start again, and no other owner is touched."""
    for owner in ("o", "p"):
        await stores.history.append(owner, [row("a", at(1)), row("b", at(2))], conversation_id="c")

    assert await stores.history.erase("o") == 2
    assert await stores.history.erase("o") == 0

    assert await stores.history.recent("o") == NOTHING
    assert await stores.history.recent("o", "c") == NOTHING
    assert (await stores.history.recent("p", "c")).total == 2
    assert await stores.history.append("o", [row("a", at(5))]) == 1
    assert (await stores.history.recent("o", max_tokens=9)).total == 1


async def test_a_profile_is_erased_by_itself(stores: Stores) -> None:
    """It is no part of the history, and another owner's stays."""
    for owner in "op":
        await stores.profiles.put(owner, {"a": 1})
        await stores.history.append(owner, [row("a", at(1))])
    await stores.history.erase("o")
    assert await stores.profiles.get("o") == {"a": 1}

    assert await stores.profiles.erase("o")
    assert not await stores.profiles.erase("o")

    assert await stores.profiles.get("o") == {}
    assert await stores.profiles.get("p") == {"a": 1}
    await stores.profiles.put("o", {"b": 2})
    assert await stores.profiles.get("o") == {"b": 2}


async def test_profiles_are_replaced_whole(stores: Stores) -> None:
    """An owner's profile is the last one put, and nobody else's."""
    assert await stores.profiles.get("o") == {}
    await stores.profiles.put("o", {"prompt_overrides": {"friends_profile": "likes\0 tea\ud800"}})
    await stores.profiles.put("p", {"created_at": RECEIPT})
    assert await stores.profiles.get("o") == {
        "prompt_overrides": {"friends_profile": "likes\0 tea\ufffd"}
    }
    await stores.profiles.put("o", {"b": 2})

    assert await stores.profiles.get("o") == {"b": 2}
    assert await stores.profiles.get("p") == {"created_at": RECEIPT.isoformat()}


async def test_a_profile_that_is_no_json_is_refused(stores: Stores) -> None:
    """A value that can't be stored is refused, and the former profile stays."""
    await stores.profiles.put("o", {"a": 1})
    with pytest.raises(InvalidRequestError, match="object is no JSON value"):
        await stores.profiles.put("o", {"a": object()})
    assert await stores.profiles.get("o") == {"a": 1}


# --- pruned by hand --------------------------------------------------------------------------


async def test_pruned_rows_are_hidden_and_come_back(stores: Stores) -> None:
    """They are in no page, total or bound, their ids stay taken, and nothing of them is lost."""
    rows = [row(str(n), at(n), conversation_id="xy"[n % 2]) for n in range(6)]
    await stores.history.append("o", rows)

    assert await stores.history.prune("o", ["5", "2", "2", "nobody"]) == 2
    assert await stores.history.prune("o", ["2"]) == 0

    page = await stores.history.recent("o")
    assert (ids(page), page.total) == ("4 3 1 0", 4)
    page = await stores.history.recent("o", "x")
    assert (ids(page), page.total) == ("4 0", 2)
    assert ids(await stores.history.recent("o", max_tokens=5)) == "4 3 1"
    assert ids(await stores.history.recent("o", max_rows=3)) == "4 3 1"
    assert [each["id"] for each in await stores.history.get_history("o", 9)] == ["4", "3", "1", "0"]
    assert await stores.history.rows("o", ["2"]) == [rows[2]]
    assert await stores.history.append("o", [row("2", at(9), "again")]) == 0

    assert await stores.history.restore("o", ["2", "5", "0", "nobody"]) == 2
    assert await stores.history.restore("o", ["2"]) == 0
    page = await stores.history.recent("o")
    assert (list(page.rows), page.total) == (rows[::-1], 6)
    assert ids(await stores.history.recent("o", max_tokens=5)) == "5 4 3"


async def test_rows_follow_a_pruned_one(stores: Stores) -> None:
    """A row without a time follows the newest row, whether that is pruned or not."""
    await stores.history.append("o", [row("a", at(1)), row("z", at(30))])
    await stores.history.prune("o", ["z"])
    await stores.history.append("o", [row("b")])
    await stores.history.append("o", [row("m", at(15))])
    await stores.history.restore("o", ["z"])

    assert ids(await stores.history.recent("o")) == "b z m a"


async def test_a_history_may_be_pruned_whole(stores: Stores) -> None:
    """What is left is an empty history that can be written to."""
    names = [f"m{number}" for number in range(1_200)]
    await stores.history.append("o", [row(name, at(1)) for name in names], conversation_id="c")

    assert await stores.history.prune("o", names) == 1_200
    for bound in (None, 0, 10):
        assert await stores.history.recent("o", "c", max_tokens=bound) == NOTHING
    await stores.history.append("o", [row("new", at(2))], conversation_id="c")
    assert ids(await stores.history.recent("o", max_tokens=1)) == "new"
    assert await stores.history.restore("o", names) == 1_200
    assert (await stores.history.recent("o", "c")).total == 1_201


async def test_marks_are_an_owners_own(stores: Stores) -> None:
    """Nobody prunes, restores or marks another owner's rows."""
    for owner in "op":
        await stores.history.append(owner, [row("a", at(1)), row("b", at(2))])

    assert await stores.history.prune("p", ["a"]) == 1
    assert await stores.history.restore("o", ["a"]) == 0
    assert await stores.history.flag_fallen("p", ["b"]) == ["b"]

    assert ids(await stores.history.recent("o")) == "b a"
    assert await stores.history.flag_fallen("o", ["b"]) == ["b"]
    assert await stores.history.prune("nobody", ["a"]) == 0
    assert await stores.history.append("nobody", [row("a", at(1))]) == 1


# --- fallen out ------------------------------------------------------------------------------


async def test_a_row_falls_out_once(stores: Stores) -> None:
    """Those that are new come back in their order; unknown and pruned ones never do."""
    odd = 'b\\\0"'
    await stores.history.append("o", [row(name, at(1)) for name in ("a", odd, "c", "d", "e")])
    await stores.history.prune("o", ["d"])

    assert await stores.history.flag_fallen("o", ["c", "nobody", odd, "d", "c"]) == ["c", odd]
    assert await stores.history.flag_fallen("o", ["a", odd, "c"]) == ["a"]
    assert await stores.history.flag_fallen("o", ["a"]) == []
    assert await stores.history.flag_fallen("o", []) == []
    assert await stores.history.flag_fallen("nobody", ["a"]) == []
    assert (await stores.history.recent("o")).total == 4
    assert await stores.history.archived("o", 10) == []

    await stores.history.restore("o", ["d"])
    assert await stores.history.flag_fallen("o", ["d"]) == ["d"]


def noted(reason: str, *names: str, **fields: str) -> Archiving:
    """Return what is written down of rows that fall out for one reason."""
    return Archiving(
        reasons=dict.fromkeys(names, reason),
        run_id=fields.get("run_id", "run_2"),
        build_id=fields.get("build_id", "bld_1"),
    )


async def test_rows_are_archived_as_they_fall_out(stores: Stores, clock: Clock) -> None:
    """A copy of each, once, with reason, run, build and time; the last that fell out first."""
    odd = "b\0"
    rows = [row("a", at(1)), row(odd, at(2)), row("c", at(3)), row("d", at(4))]
    await stores.history.append("o", rows, conversation_id="x")
    first = noted("older", "a", odd)
    assert await stores.history.flag_fallen("o", ["a", odd], archiving=first) == ["a", odd]
    clock.now += timedelta(hours=1)
    second = noted("too_large", "a", "c", build_id="bld_2")
    assert await stores.history.flag_fallen("o", ["a", "c"], archiving=second) == ["c"]

    copies = await stores.history.archived("o", 10)

    assert [copy.row["id"] for copy in copies] == ["c", odd, "a"]
    assert copies[0] == ArchivedRow(
        row={**rows[2], "conversation_id": "x"},
        reason="too_large",
        run_id="run_2",
        build_id="bld_2",
        at=clock.now,
    )
    assert copies[1].at == RECEIPT
    assert [copy.row["id"] for copy in await stores.history.archived("o", 1)] == ["c"]
    assert await stores.history.archived("o", 0) == []
    assert await stores.history.archived("p", 10) == []


@pytest.mark.parametrize("run_id", ["a\0b", "a\\0b", "\\", "a\ud800b", ""])
async def test_copies_report_any_run(stores: Stores, run_id: str) -> None:
    """A run's id is a stranger's text, and comes back; a lone surrogate as its replacement."""
    note = Archiving(reasons={"1": "r"}, run_id=run_id, build_id="b")
    await stores.history.append("o", [row("1", at(1))])
    await stores.history.flag_fallen("o", ["1"], archiving=note)

    (copy,) = await stores.history.archived("o", 9)
    assert copy.run_id == run_id.replace("\ud800", "\ufffd")


async def test_an_owner_is_counted(stores: Stores) -> None:
    """Rows and tokens of what builds may read, and the marks; erasing leaves none of it."""
    assert await stores.history.stats("o") == HistoryStats()
    await stores.history.append("o", [row(str(n), at(n), "w " * n) for n in range(6)])
    await stores.history.prune("o", ["0", "5"])
    await stores.history.flag_fallen("o", ["1"])
    await stores.history.flag_fallen("o", ["2", "3"], archiving=noted("older", "2", "3"))

    counted = HistoryStats(rows=4, tokens=10, pruned=2, fallen=3, archived=2)
    assert await stores.history.stats("o") == counted
    assert await stores.history.stats("p") == HistoryStats()

    assert await stores.history.erase("o") == 6
    assert await stores.history.stats("o") == HistoryStats()
    await stores.history.append("o", [row("1", at(1))])
    assert await stores.history.flag_fallen("o", ["1"]) == ["1"]


# --- concurrency -----------------------------------------------------------------------------


async def test_concurrent_appends_to_one_owner_lose_nothing(stores: Stores) -> None:
    """Two tasks with fifty appends each: all rows are there, each counted once."""

    async def write(name: str) -> int:
        new = 0
        for n in range(50):
            rows = [row(f"{name}{n}", at(n)), row(f"shared{n}", at(n))]
            new += await stores.history.append("o", rows, conversation_id=name)
        return new

    async with asyncio.TaskGroup() as tasks:
        first, second = tasks.create_task(write("x")), tasks.create_task(write("y"))

    assert first.result() + second.result() == 150
    page = await stores.history.recent("o", max_tokens=300)
    assert page.total == len(page.rows) == len({row["id"] for row in page.rows}) == 150
    assert len((await stores.history.recent("o", max_tokens=298)).rows) == 149
    totals = [(await stores.history.recent("o", name)).total for name in "xy"]
    assert sum(totals) == 150
