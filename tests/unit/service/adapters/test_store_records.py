"""Rows are read into records that any database can keep."""

import asyncio
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.rows import MAX_DEPTH
from service.adapters import store_records as rows
from service.adapters.store_records import (
    LARGE_BATCH,
    OwnerLocks,
    Record,
    microseconds,
    read_batch,
    read_records,
    sort_times,
    terms_in,
    to_json,
)
from service.errors import InvalidRequestError
from service.recall.terms import row_terms

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
any_text = st.text(st.characters(exclude_categories=[]))


class Characters:
    """Counts characters, and remembers what it has counted."""

    name = "characters"
    exact = True

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        """Return the number of characters."""
        self.texts.append(text)
        return len(text)


#: Metadata of a row that calls a tool.
CALLING = {"tool_calls": [{"id": "c", "name": "look", "arguments": {"a": 1}}]}


def read(**fields: object) -> Record:
    """Read one row."""
    return read_records([{"id": "a", "role": "HUMAN", **fields}], None, Characters())[0]


@given(content=json_values, metadata=json_values)
def test_json_comes_back_equal(content: object, metadata: object) -> None:
    """A row's body gives back every JSON value as it was."""
    body = json.loads(read(content=content, metadata=metadata).body)
    assert (body["content"], body["metadata"]) == (content, metadata)


@given(text=any_text)
def test_bodies_are_text_for_every_database(text: str) -> None:
    """A body has neither a NUL nor a lone surrogate, whatever a row holds."""
    body = to_json({text: [text]}, "")
    assert "\0" not in body
    assert body.encode()
    assert isinstance(json.loads(body), dict)


def test_mappings_and_datetimes_are_written() -> None:
    """Mappings become objects, and datetimes text, at any depth."""
    value = MappingProxyType({"when": [datetime(2025, 1, 1, tzinfo=UTC)]})
    assert json.loads(to_json(value, "")) == {"when": ["2025-01-01T00:00:00+00:00"]}


def test_keys_of_other_services_are_left_out() -> None:
    """A row keeps the keys of the contract, and no owner that it names itself."""
    body = json.loads(read(owner_key="somebody", role="AI", extra=1).body)
    assert list(body) == ["id", "run_id", "role", "content", "timestamp", "metadata"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"role": "usr", "content": "hi"}, r"^/0/role: 'usr' is unknown; did you mean user\?$"),
        ({"role": "user", "contents": "hi"}, "^/0: has no content, but 'contents': write its text"),
    ],
)
def test_a_misspelt_row_is_refused(row: dict[str, object], error: str) -> None:
    """No context would show it. A role that is nobody's slip is kept, without being shown."""
    assert read(role="system", content="hi").terms == ()
    with pytest.raises(InvalidRequestError, match=error):
        read_records([{"id": "a", **row}], None, Characters())


def test_depth_is_bounded() -> None:
    """The deepest value that is let through can be read; one level more is refused."""
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = {"in": value}
    assert json.loads(to_json(value, "")) == value
    with pytest.raises(InvalidRequestError, match=r"^/x: nested deeper than 64 levels"):
        to_json([value], "/x")


def test_a_value_that_holds_itself_is_refused() -> None:
    """A loop is deeper than any limit."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        to_json(loop, "")


@pytest.mark.parametrize(
    ("fields", "tokens", "printed", "native"),
    [
        ({"content": "x" * 500}, 500, 500, 504),
        ({"content": "x" * 501}, 501, 500, 505),
        ({"content": "x" * 501, "role": " tool "}, 501, 0, 505),
        ({"content": "x" * 501, "role": "Assistant"}, 501, 500, 505),
        ({"content": "x" * 501, "role": "SYSTEM"}, 501, 0, 0),
        ({"content": "x" * 501, "role": None}, 501, 0, 0),
        ({"content": None}, 0, 0, 4),
        ({"content": 5}, 0, 0, 4),
        ({"content": [{"type": "text", "text": "ab"}, {"type": "audio"}, "c"]}, 4, 4, 8),
        ({"content": "x", "role": "AI", "metadata": CALLING}, 1, 1, 1 + 4 + len('look{"a": 1}')),
    ],
)
def test_tokens_are_those_of_the_text(
    fields: Mapping[str, object], tokens: int, printed: int, native: int
) -> None:
    """Of the whole text, of what the memory block prints, and of a message with its calls."""
    record = read(**fields)
    assert (record.tokens, record.printed_tokens) == (tokens, printed)
    assert record.native_tokens == native


def test_a_long_text_is_counted_as_it_is_printed() -> None:
    """A cut text ends in three dots, which are counted too."""
    counter = Characters()
    read_records([{"id": "a", "role": "AI", "content": "x" * 600}], None, counter)
    assert counter.texts == ["x" * 600, "x" * 497 + "..."]


class Threads(Characters):
    """Remembers where it has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def count(self, text: str) -> int:
        """Return the number of characters."""
        self.seen.add(threading.get_ident())
        return super().count(text)


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "a", "content": "x" * LARGE_BATCH}],
        [{"id": str(n), "content": "x" * 1000} for n in range(LARGE_BATCH // 1000)],
        [{"id": "a", "content": [{"type": "text", "text": "x" * LARGE_BATCH}]}],
        [{"id": "a", "content": "", "metadata": {"numbers": list(range(LARGE_BATCH))}}],
    ],
)
async def test_large_batches_are_read_in_a_thread(rows: list[dict[str, object]]) -> None:
    """What takes long to read, in one row or in many, does not stop the event loop."""
    counter = Threads()

    records = await read_batch(rows, None, counter)

    assert threading.get_ident() not in counter.seen
    assert records == read_records(rows, None, counter)


async def test_small_batches_are_read_at_once() -> None:
    """A thread is not worth its while for a message."""
    counter = Threads()
    await read_batch([{"id": "a", "content": "x" * 1000}], None, counter)
    assert counter.seen == {threading.get_ident()}


async def test_a_batch_that_holds_itself_is_refused() -> None:
    """The size of a loop is looked for only so long."""
    loop: dict[str, object] = {}
    loop["in"] = [loop, loop]
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        await read_batch([{"id": "a", "metadata": loop}], None, Characters())


CALLS = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("row", "metadata"),
    [
        ({"tool_calls": CALLS}, {"tool_calls": CALLS}),
        ({"tool_calls": CALLS, "metadata": None}, {"tool_calls": CALLS}),
        ({"tool_calls": CALLS, "metadata": "odd"}, {"tool_calls": CALLS}),
        ({"tool_calls": CALLS, "metadata": {"tool_calls": [], "n": 1}}, {"tool_calls": [], "n": 1}),
        ({"tool_calls": CALLS, "metadata": {"tool_calls": None}}, {"tool_calls": CALLS}),
        ({"tool_call_id": "c", "name": "look"}, {"tool_call_id": "c", "name": "look"}),
        ({"name": None, "metadata": {"name": "look"}}, {"name": "look"}),
        (
            {"provider_parts": [{"type": "compaction"}]},
            {"provider_parts": [{"type": "compaction"}]},
        ),
        ({"name": None, "metadata": "odd"}, "odd"),
        ({"metadata": {}}, {}),
        ({}, None),
    ],
)
def test_chat_messages_keep_their_calls(row: dict[str, object], metadata: object) -> None:
    """Other keys of a chat message are kept in the metadata, unless it has them."""
    (record,) = read_records([{"id": "a", **row}], None, Characters())
    body = json.loads(record.body)
    assert body["metadata"] == metadata
    assert set(body) == {"id", "run_id", "role", "content", "timestamp", "metadata"}


def test_of_equal_ids_the_first_stands() -> None:
    """An id that a repair makes equal to an earlier one is that one, and is counted once."""
    counter = Characters()
    rows = [
        {"id": "a\ufffd", "role": "AI", "content": "first"},
        {"id": "a\ud800", "role": "AI", "content": "second"},
    ]
    records = read_records(rows, None, counter)
    assert [json.loads(record.body)["content"] for record in records] == ["first"]
    assert counter.texts == ["first"]


def test_calls_and_results_are_searched() -> None:
    """Calls with all arguments, beside what is said; only what is said gets a vector."""
    calling = read(role="AI", content="Wait", metadata=CALLING)
    assert (calling.said, calling.of_tools) == ("Wait", 'look {"a": 1}')
    assert terms_in(calling.body) == calling.terms == ("wait", "look", "1")
    for metadata in ({}, CALLING):
        result = read(role="TOOL", content="Boats", metadata=metadata)
        assert (result.said, result.of_tools) == ("", "Boats")
        assert terms_in(result.body) == result.terms == ("boat", "boats")
    assert read(content="Boats", metadata={"tool_calls": [1]}).of_tools == ""

    assert calling.is_embedded
    assert not read(content=" ", metadata=CALLING).is_embedded
    assert not read(role="TOOL", content="Boats").is_embedded


@pytest.mark.parametrize("as_json", [False, True])
def test_escapes_in_arguments_join_no_words(as_json: bool) -> None:
    """The words of keys and values find a row, whether it has them as an object or as JSON."""
    values = {"text": 'Fish\nat the "café"\t\x01dock', "paths": ["C:\\new\\tuna"]}
    arguments = json.dumps(values) if as_json else values
    calls = [{"name": "edit", "arguments": arguments}]
    found = {"edit", "text", "fish", "café", "dock", "path", "paths", "new", "tuna"}

    assert {*read(role="AI", metadata={"tool_calls": calls}).terms} == found


@pytest.mark.parametrize(
    "arguments",
    ['{"n": ' + "9" * 5_000 + "}", '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}", "{x\\n"],
)
def test_arguments_that_no_parser_reads_are_stored(arguments: str) -> None:
    """They have no words, and the name of the tool still finds the row."""
    call = {"name": "edit", "arguments": arguments}

    assert read(role="AI", metadata={"tool_calls": [call]}).terms == ("edit", "null")


@pytest.mark.parametrize(("role", "terms"), [("HUMAN", ("boat", "boats")), ("system", ())])
def test_terms_are_worked_out_when_they_are_requested(
    monkeypatch: pytest.MonkeyPatch, role: str, terms: tuple[str, ...]
) -> None:
    """Reading a row leaves them alone: one that is stored already needs none."""
    asked: list[str] = []

    def noted(*texts: str) -> tuple[str, ...]:
        asked.append(" ".join(texts))
        return row_terms(*texts)

    monkeypatch.setattr(rows, "row_terms", noted)
    (record,) = read_records([{"id": "a", "role": role, "content": "Boats"}], None, Characters())
    assert asked == []

    assert set(record.terms) == set(terms)
    assert record.terms is record.terms
    assert len(asked) == 1


async def test_terms_of_large_batches_are_worked_out_in_a_thread() -> None:
    """The loop goes on meanwhile."""
    batch = [{"id": "a", "role": "HUMAN", "content": "boats " * LARGE_BATCH}]

    (record,) = await read_batch(batch, None, Characters())

    assert "terms" in vars(record)


def test_sort_times_fill_gaps_forward() -> None:
    """A record without a time sorts with the one before it, the first with what was there."""
    moments = [None, "2025-01-01T00:00:01Z", "?", "2025-01-01T00:00:00.000001Z", None]
    rows = [{"id": str(n), "timestamp": moment} for n, moment in enumerate(moments)]
    start = microseconds(datetime(2025, 1, 1, tzinfo=UTC))

    times = sort_times(read_records(rows, None, Characters()), start - 5)
    assert [time - start for time in times] == [-5, 1_000_000, 1_000_000, 1, 1]


def test_sort_times_fill_the_first_gap_backward() -> None:
    """Records before the first time sort with it if what was there is later."""
    rows = [{"id": str(n), "timestamp": moment} for n, moment in enumerate([None, "1970-01-01"])]
    records = read_records(rows, None, Characters())
    assert sort_times(records, microseconds(datetime.max.replace(tzinfo=UTC))) == [0, 0]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), -1),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999_999),
    ],
)
def test_microseconds_are_exact(moment: datetime, expected: int) -> None:
    """No moment of the calendar is rounded."""
    assert microseconds(moment) == expected


async def test_owners_take_turns_apart() -> None:
    """Those of one owner come in turn; another owner does not wait for them."""
    locks, order, held = OwnerLocks(), [], asyncio.Event()

    async def change(owner: str, name: str, *, until: asyncio.Event) -> None:
        async with locks.of(owner):
            await until.wait()
            order.append(name)

    free = asyncio.Event()
    free.set()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change("o", "first", until=held))
        tasks.create_task(change("o", "second", until=free))
        await tasks.create_task(change("p", "other", until=free))
        held.set()

    assert order == ["other", "first", "second"]


async def test_owners_are_forgotten() -> None:
    """An owner whom nothing happens to takes no room."""
    locks = OwnerLocks()
    async with locks.of("o"):
        assert len(locks._locks) == 1
    assert len(locks._locks) == 0
