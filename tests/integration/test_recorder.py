"""The recorder over real buses and a database: each row once and in its place, whatever happens."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from formatters.model import Row
from formatters.rows import read_rows
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.store import open_sql_store
from service.config.settings import BusSettings, Settings
from service.errors import BusError, InvalidRequestError, StoreError
from service.ports.bus import Bus, Delivery, Inbox
from service.ports.stores import HistoryStore
from service.wire.protocol import Topics
from service.wire.request import BuildRequest
from service.worker.recorder import Recorder
from tests.integration.bus_places import Place, until
from tests.stores import Sql, Words
from tests.support import BrokenHistory, Noted, run_recorder

pytestmark = pytest.mark.integration

#: Seconds: a lease that is over soon.
LEASE: Final = 0.2
#: On the servers that differ in nothing here, one real one is enough.
one_server = pytest.mark.parametrize("place", ["memory", "redis"], indirect=True)
#: Where the bus, or a history of the test's own, is at fault, one database is enough.
one_database = pytest.mark.parametrize("sql", ["sqlite"], indirect=True)


def stamp() -> datetime:
    """Return the receipt of rows that bring no time; the recorder gives each one."""
    return datetime(2025, 6, 1, 12, tzinfo=UTC)


def result(name: str, content: object = "hi", **fields: Any) -> bytes:
    """Return a row as it is on a results stream."""
    row = {"id": name, "owner_key": "o", "role": "AI", "content": content, **fields}
    return json.dumps(row).encode()


def settings(lease: float = LEASE) -> Settings:
    """Return settings with a lease, which is renewed four times before it is over."""
    return Settings(bus=BusSettings(lease_seconds=lease, heartbeat_seconds=lease / 4))


@asynccontextmanager
async def recording(
    place: Place,
    history: HistoryStore,
    name: str = "recorder",
    metrics: Noted | None = None,
    lease: float = LEASE,
) -> AsyncIterator[Bus]:
    """Run a recorder of another worker while the context lasts; then it is gone as if killed."""
    bus = await place.open(name, lease_seconds=lease)
    await bus.results.trim()  # finds the streams
    await bus.results.leave()  # the group is there from here on, and so its depth
    recorder = Recorder(history, bus, settings(lease), metrics or Noted())
    running = asyncio.create_task(run_recorder(recorder, settings(lease).bus))
    try:
        yield bus
    finally:
        running.cancel()
        await asyncio.wait([running])


@asynccontextmanager
async def histories(sql: Sql, count: int = 1) -> AsyncIterator[list[HistoryStore]]:
    """Open a database n times, as n processes do."""
    async with AsyncExitStack() as stack:
        opened = [open_sql_store(sql.url, Words, stamp) for _ in range(count)]
        yield [(await stack.enter_async_context(each)).history for each in opened]


async def total(history: HistoryStore, owner: str = "o") -> int:
    """Return how many rows an owner has."""
    return (await history.recent(owner, max_rows=0)).total


async def settled(bus: Bus) -> bool:
    """Return whether nothing waits for the recorders and none has anything in hand."""
    depth = await bus.results.depth()
    return not depth.pending and not depth.lag


async def dead(bus: Bus) -> list[bytes]:
    """Return the payloads of the dead letter."""
    return [letter.payload async for letter in bus.dead_letters.scan()]


def table(sql: Sql) -> list[tuple[object, ...]]:
    """Return all rows of the history with all their columns, totals too."""
    return sql.ask("SELECT * FROM messages ORDER BY owner_key, id")


# --- the inbox -------------------------------------------------------------------------------


async def claimed(bus: Bus) -> list[Delivery]:
    """Claim what another worker let slip."""
    return await until(lambda: bus.results.claim(10))


async def test_a_forgiven_delivery_counts_as_the_first(place: Place) -> None:
    """However often it was claimed; it stays where it is, and its lease is renewed."""
    one, other = [await place.open(name, lease_seconds=LEASE) for name in ("one", "other")]
    for name in ("a", "b"):
        await one.append(Topics.LLM_RESULTS, result(name))
    held = await one.results.receive(10, wait=1)
    for attempt in (2, 3):
        await one.results.release(held)
        held = await claimed(one)
        assert [each.attempt for each in held] == [attempt] * 2

    await one.results.set_attempts(held[:1], 1)
    await one.results.release(held)

    assert [each.attempt for each in await claimed(other)] == [2, 4]
    await one.results.set_attempts(held, 1)
    assert await one.results.claim(10) == []
    assert [each.attempt for each in await claimed(one)] == [3, 5]
    await other.results.set_attempts([], 1)


async def test_earlier_entries_are_those_that_wait_for_any_worker(place: Place) -> None:
    """Nothing about them changes: neither who holds them, nor their lease, nor their attempts."""
    one, other = [await place.open(name, lease_seconds=LEASE) for name in ("one", "other")]
    for name in "abc":
        await one.append(Topics.LLM_RESULTS, result(name))
    a, b = [(await one.results.receive(1, wait=1))[0] for _ in "ab"]
    await one.append(Topics.TOOLS_RESULTS, result("elsewhere"))
    c, elsewhere = sorted(await other.results.receive(9, wait=1), key=lambda each: each.source)

    assert await other.results.find_earlier([c]) == [a, b]
    assert await one.results.find_earlier([b]) == [a]
    assert await one.results.find_earlier([a, b]) == []
    assert await other.results.find_earlier([c, elsewhere]) == [a, b]
    assert await other.results.find_earlier([]) == []
    await one.results.ack([a])
    await one.results.release([b])
    assert await other.results.find_earlier([c]) == [b]
    assert [each.token for each in await other.results.claim(1)] == [b.token]


async def test_a_claim_may_be_counted_later(place: Place) -> None:
    """Until it is, it was none for others."""
    bus = await place.open("one", lease_seconds=LEASE)
    await bus.append(Topics.LLM_RESULTS, result("a"))
    held = await bus.results.receive(1, wait=1)
    for counted in (False, False, True, True):
        await bus.results.release(held)
        held = await bus.results.claim(1, counted=False)
        assert [each.attempt for each in held] == [2]
        if counted:
            await bus.results.set_attempts(held, 1)
    await bus.results.set_attempts(held, 2)
    await bus.results.release(held)
    assert [each.attempt for each in await bus.results.claim(1)] == [3]


async def test_entries_have_times_in_their_order(place: Place) -> None:
    """Also those of one millisecond: rows without a time keep the order in which they were sent."""
    bus = await place.open("one")
    for number in range(60):
        await bus.append(Topics.LLM_RESULTS, result(str(number)))
    times = [each.received_at for each in await bus.results.receive(200, wait=1)]

    assert len(times) == 60
    assert times == sorted(set(times))


# --- many at once ----------------------------------------------------------------------------


@one_server
async def test_many_workers_write_one_history(place: Place, sql: Sql) -> None:
    """Results of two streams and inputs, all twice: each row once, in its order, counted right."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    asked = [start + timedelta(minutes=3 * number) for number in range(12)]
    async with histories(sql, 4) as (reading, *writing), AsyncExitStack() as stack:
        buses = [
            await stack.enter_async_context(
                recording(place, history, f"recorder-{number}", lease=2)
            )
            for number, history in enumerate(writing)
        ]

        async def run_of(number: int, bus: Bus, history: HistoryStore) -> None:
            moments = [(asked[number] + timedelta(minutes=n)).isoformat() for n in range(3)]
            request = BuildRequest.model_validate(
                {
                    "id": f"q{number}",
                    "owner_key": "o",
                    "content": {"current_input": "one two", "timestamp_utc": moments[0]},
                }
            )
            for _ in range(2):
                await bus.append(
                    Topics.TOOLS_RESULTS, result(f"t{number}", role="TOOL", timestamp=moments[2])
                )
                await bus.append(Topics.LLM_RESULTS, result(f"a{number}", timestamp=moments[1]))
                await Recorder(history, bus, settings()).record_input(request)

        async with asyncio.TaskGroup() as tasks:
            for number in range(12):
                tasks.create_task(run_of(number, buses[number % 3], writing[number % 3]))
        await until(lambda: settled(buses[0]))
        page = await reading.recent("o")
        half = await reading.recent("o", max_tokens=18)

    kinds = [str(each["role"]).lower() for each in page.rows[::-1]]
    assert kinds == ["human", "ai", "tool"] * 12
    assert page.total == len({each["id"] for each in page.rows}) == 36
    assert len(half.rows) == 18
    assert await dead(buses[0]) == []


async def test_a_replay_changes_nothing(place: Place, sql: Sql) -> None:
    """Sent again, or delivered again because who wrote it died before it said so."""
    payloads = [result("a"), result("b", timestamp="2999-01-01T10:00:00Z"), result("c")]
    async with histories(sql) as (history,):
        lost = await place.open("lost", lease_seconds=LEASE)
        for payload in payloads:
            await lost.append(Topics.LLM_RESULTS, payload)
        async with recording(place, Unacked(history), "dies"):
            await until(lambda: has(history, 1))
        first = table(sql)
        async with recording(place, history, "lives") as bus:
            await until(lambda: settled(bus))
            before = table(sql)
            with capture_logs() as logs:
                for payload in payloads:
                    await bus.append(Topics.TOOLS_RESULTS, payload)
                await until(lambda: settled(bus))

            assert table(sql) == before
            assert [each for each in before if each in first] == first
            assert await total(history) == 3
            assert await dead(bus) == []
            assert "recorder.conflict" not in {each["event"] for each in logs}


async def has(history: HistoryStore, rows: int) -> bool:
    """Return whether the owner has at least n rows."""
    return await total(history) >= rows


class Unacked(BrokenHistory):
    """A history that writes a row, and never says so."""

    def __init__(self, history: HistoryStore) -> None:
        super().__init__()
        self._history = history

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows and wait for ever."""
        await self._history.append(owner_key, messages, conversation_id=conversation_id)
        await asyncio.Event().wait()
        return 0


@one_server
@pytest.mark.parametrize(
    "other",
    [
        {"content": "bye"},
        {"role": "TOOL"},
        {"metadata": {"tool_calls": [{"name": "f"}]}},
        {"content": ["hi"]},
        {"conversation_id": "other"},
        {"run_id": "other"},
    ],
)
async def test_of_two_rows_with_one_id_the_first_stays(
    place: Place, sql: Sql, other: dict[str, Any]
) -> None:
    """The other is logged with id and owner, and is no dead letter."""
    with capture_logs() as logs:
        async with histories(sql) as (history,), recording(place, history) as bus:
            await bus.append(Topics.LLM_RESULTS, result("a", metadata={"x": 1}))
            await until(lambda: has(history, 1))
            before = table(sql)
            await bus.append(Topics.LLM_RESULTS, result("a", **other))
            await until(lambda: settled(bus))

            assert table(sql) == before
            assert await dead(bus) == []
    reported = [each for each in logs if each["event"] == "recorder.conflict"]
    assert [(each["row_id"], each["owner_key"]) for each in reported] == [("a", "o")]


# --- versions of a row, and faults of the bus ------------------------------------------------


@one_server
@one_database
async def test_of_three_versions_the_first_sent_stays(place: Place, sql: Sql) -> None:
    """Also if a worker that was killed held the first, so that the others are delivered earlier."""
    async with histories(sql, 2) as (one, other):
        killed = await place.open("killed", lease_seconds=LEASE)
        await killed.append(Topics.LLM_RESULTS, result("a", "first"))
        await killed.results.receive(1, wait=1)
        async with (
            recording(place, one, "recorder-1") as bus,
            recording(place, other, "recorder-2"),
        ):
            for content in ("second", "third"):
                await bus.append(Topics.LLM_RESULTS, result("a", content))
            await bus.append(Topics.LLM_RESULTS, result("b", "unlike them"))
            await until(lambda: has(one, 2))
            await until(lambda: settled(bus))
            rows = {each["id"]: each["content"] for each in (await one.recent("o")).rows}

            assert rows == {"a": "first", "b": "unlike them"}
            assert await dead(bus) == []


class Cut:
    """An inbox whose connection breaks some times: before `ack`, or behind another call."""

    def __init__(self, inbox: Inbox, failing: Sequence[str], times: int) -> None:
        self._inbox = inbox
        self._left = dict.fromkeys(failing, times)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the inbox, whose reply gets lost."""
        method = getattr(self._inbox, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            breaks = self._left.get(name, 0) > 0
            reply = None if breaks and name == "ack" else await method(*arguments, **options)
            if breaks and reply != []:
                self._left[name] -= 1
                raise BusError(f"the connection broke at {name}")
            return reply

        return call


@dataclass
class CutBus:
    """A bus with such an inbox of results."""

    results: Any


@one_server
@one_database
@pytest.mark.parametrize(
    "failing", [["claim"], ["ack"], ["set_attempts"], ["claim", "ack", "set_attempts"]]
)
async def test_faults_of_the_bus_are_no_attempts_of_a_row(
    place: Place, sql: Sql, failing: list[str]
) -> None:
    """A good row is written, however often the connection breaks around it."""
    async with histories(sql) as (history,):
        killed = await place.open("killed", lease_seconds=LEASE)
        await killed.append(Topics.LLM_RESULTS, result("a"))
        await killed.results.receive(1, wait=1)
        bus = await place.open("survivor", lease_seconds=LEASE)
        cut: Any = CutBus(Cut(bus.results, failing, 5))
        recorder = Recorder(history, cut, settings())
        running = asyncio.create_task(run_recorder(recorder, settings().bus))
        await until(lambda: settled(bus))
        running.cancel()
        await asyncio.wait([running])

        assert await total(history) == 1
        assert await dead(bus) == []


# --- what goes wrong -------------------------------------------------------------------------


class Deadly(BrokenHistory):
    """A history in which one row blocks its writer; the test kills the worker that is stuck."""

    def __init__(self, history: HistoryStore) -> None:
        super().__init__()
        self._history = history
        #: Set when somebody tries to write that row.
        self.reached = asyncio.Event()

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows, but for the one."""
        if messages[0]["id"] == "poison":
            self.reached.set()
            await asyncio.Event().wait()
        return await self._history.append(owner_key, messages, conversation_id=conversation_id)


@one_server
@one_database
async def test_a_row_that_ends_workers_takes_no_other_with_it(place: Place, sql: Sql) -> None:
    """After its last delivery, it alone is dead-lettered; the rest of its batch is written."""
    metrics = Noted()
    async with histories(sql) as (history,):
        deadly = Deadly(history)
        bus = await place.open("producer")
        for name in ("poison", *"abcde"):
            await bus.append(Topics.LLM_RESULTS, result(name))
        for life in range(settings().bus.max_deliveries):
            deadly.reached.clear()
            async with recording(place, deadly, f"victim-{life}"), asyncio.timeout(60):
                await deadly.reached.wait()
        async with recording(place, deadly, "survivor", metrics) as last:
            await until(lambda: settled(last))
            page = await history.recent("o")

    assert [each["id"] for each in page.rows] == list("edcba")
    assert [json.loads(each)["id"] for each in await dead(bus)] == ["poison"]
    assert metrics.counted == ["dead_letters result"]


@one_server
@one_database
async def test_what_is_no_row_stops_no_other(place: Place, sql: Sql) -> None:
    """It is dead-lettered at once, and counted."""
    metrics = Noted()
    infinite = result("c", metadata={"x": 12345}).replace(b"12345", b"1e400")
    chunk = result("d", {"event": "text_chunk", "payload": {"chunk": "a"}})
    bad = [b"nonsense", result("", "x"), result("a" * 300), b"\xff", infinite, chunk]
    answer = {"content": "Paris.", "tool_calls": None}
    async with histories(sql) as (history,), recording(place, history, metrics=metrics) as bus:
        for number, payload in enumerate(bad):
            await bus.append(Topics.LLM_RESULTS, payload)
            await bus.append(Topics.LLM_RESULTS, result(str(number), answer))
        await until(lambda: settled(bus))

        stored = (await history.recent("o", max_rows=99)).rows
        assert [row["content"] for row in stored] == ["Paris."] * len(bad)
        assert sorted(await dead(bus)) == sorted(bad)
    assert metrics.counted == ["dead_letters result"] * len(bad)


#: Has a database refuse rows that say "no", as a rule of its operator may.
REFUSE = {
    "sqlite": "CREATE TRIGGER no BEFORE INSERT ON messages WHEN new.body LIKE '%\"no\"%'"
    " BEGIN SELECT RAISE(ABORT, 'no'); END",
    "postgresql": "ALTER TABLE messages ADD CONSTRAINT no CHECK (body NOT LIKE '%\"no\"%')",
}


@pytest.fixture
def refusing(sql: Sql) -> Iterator[Sql]:
    """Give a database that refuses rows which say "no"."""
    asyncio.run(upgrade(sql.url))
    sql.ask(REFUSE[sql.url.partition(":")[0]])
    yield sql
    if sql.url.startswith("postgresql"):
        sql.ask("ALTER TABLE messages DROP CONSTRAINT no")


@one_server
async def test_a_row_that_the_database_refuses_is_a_dead_letter(
    place: Place, refusing: Sql
) -> None:
    """It would be refused for ever; to wait for it as for an outage would hold up all others."""
    metrics = Noted()
    async with histories(refusing) as (history,), recording(place, history, metrics=metrics) as bus:
        for name, said in (("a", "yes"), ("b", "no"), ("c", "yes")):
            await bus.append(Topics.LLM_RESULTS, result(name, said))
        await until(lambda: settled(bus))

        assert [each["id"] for each in (await history.recent("o")).rows] == ["c", "a"]
        assert await dead(bus) == [result("b", "no")]
    assert metrics.counted == ["dead_letters result"]


@one_server
async def test_an_input_that_the_database_refuses_is_no_outage(place: Place, refusing: Sql) -> None:
    """The error says that the same request can't succeed."""
    request = BuildRequest.model_validate(
        {"id": "r", "owner_key": "o", "content": {"current_input": "no"}}
    )
    async with histories(refusing) as (history,), recording(place, history) as bus:
        with pytest.raises(InvalidRequestError) as caught:
            await Recorder(history, bus, settings()).record_input(request)
    assert not caught.value.retryable


class Gate(BrokenHistory):
    """A history that takes nothing until it is opened: it fails, or is silent."""

    def __init__(self, history: HistoryStore, *, silent: bool) -> None:
        super().__init__()
        self._history = history
        self._silent = silent
        self.open = asyncio.Event()
        #: Set when somebody has tried to write.
        self.tried = asyncio.Event()

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows, once it is open."""
        self.tried.set()
        if self._silent:
            await self.open.wait()
        if not self.open.is_set():
            raise StoreError("away")
        return await self._history.append(owner_key, messages, conversation_id=conversation_id)


@one_server
@one_database
@pytest.mark.parametrize("silent", [False, True])
async def test_rows_wait_through_an_outage(place: Place, sql: Sql, silent: bool) -> None:
    """Longer than all deliveries' leases together, with several workers: none is dead-lettered."""
    names = [str(number) for number in range(8)]
    async with histories(sql) as (history,):
        gate = Gate(history, silent=silent)
        async with AsyncExitStack() as stack:
            workers = [recording(place, gate, f"worker-{number}") for number in range(5)]
            bus, *_ = [await stack.enter_async_context(each) for each in workers]
            began = bus.now()
            for name in names:
                await bus.append(Topics.LLM_RESULTS, result(name))
            over = began + timedelta(seconds=LEASE * (settings().bus.max_deliveries + 3))
            await until(lambda: passed(bus, over))
            gate.open.set()
            await until(lambda: settled(bus))
            page = await history.recent("o")

            assert [each["id"] for each in page.rows] == names[::-1]
            assert await dead(bus) == []


async def passed(bus: Bus, moment: datetime) -> bool:
    """Return whether it is later than that."""
    return bus.now() > moment


@one_server
@one_database
async def test_workers_that_end_in_an_outage_cost_no_row(place: Place, sql: Sql) -> None:
    """However many of them had it in hand: who finds the store away has not failed at the row."""
    async with histories(sql) as (history,):
        gate = Gate(history, silent=False)
        bus = await place.open("producer")
        for name in "abc":
            await bus.append(Topics.LLM_RESULTS, result(name))
        for life in range(settings().bus.max_deliveries + 2):
            gate.tried.clear()
            async with recording(place, gate, f"worker-{life}") as taken:
                async with asyncio.timeout(60):
                    await gate.tried.wait()
                assert not await settled(taken)
        gate.open.set()
        async with recording(place, gate, "last") as last:
            await until(lambda: settled(last))
            page = await history.recent("o")

    assert [each["id"] for each in page.rows] == list("cba")
    assert await dead(bus) == []


# --- inputs ----------------------------------------------------------------------------------


def asked(name: str, text: str, **fields: Any) -> BuildRequest:
    """Return a request of the owner in the short form."""
    raw = {"id": name, "owner_key": "o", "content": {"current_input": text}, **fields}
    return BuildRequest.model_validate(raw)


@asynccontextmanager
async def inputs(
    place: Place, sql: Sql, metrics: Noted | None = None
) -> AsyncIterator[tuple[Recorder, HistoryStore]]:
    """Give a recorder and its history."""
    async with open_sql_store(sql.url, Words, stamp) as stores:
        bus = await place.open("one")
        yield Recorder(stores.history, bus, settings(), metrics or Noted()), stores.history


@one_server
async def test_each_input_has_a_row_of_its_own(place: Place, sql: Sql) -> None:
    """Whatever ids requests and other rows bear, no input takes the place of another row."""
    requests = [
        *(asked("msg_1", "first"), asked("1", "second"), asked("1", "used again")),
        asked("2", "a row has the name that this one was once given"),
    ]
    async with inputs(place, sql) as (recorder, history):
        await history.append("o", [{"id": "in_2", "role": "AI", "content": "not an input"}])
        for _ in range(2):
            assert [await recorder.record_input(each) for each in requests] == [None] * 4

        rows = await history.get_history("o", 100)
    assert sorted(str(row["content"]) for row in rows if row["role"] == "HUMAN") == sorted(
        each.current_input for each in requests
    )
    assert len({each.run_id for each in requests}) == len(requests)


@one_server
async def test_an_input_of_an_older_version_is_not_doubled(place: Place, sql: Sql) -> None:
    """A retry finds the row that was stored under its former id, in its former run."""
    former = {"id": "in_1", "run_id": "run_1", "role": "HUMAN", "content": "where is the key"}
    async with inputs(place, sql) as (recorder, history):
        await history.append("o", [former])
        assert await recorder.record_input(asked("msg_1", "where is the key")) is None
        assert len(await history.get_history("o", 100)) == 1

        assert await recorder.record_input(asked("msg_1", "another question")) is None
        assert await recorder.record_input(asked("1", "where is the key", run_id="r")) is None
        assert len(await history.get_history("o", 100)) == 3


@one_server
async def test_an_input_that_was_just_read_is_not_written_again(place: Place, sql: Sql) -> None:
    """A row with its id counts only if a human said the same."""
    content = {"history": [{"id": "mine", "content": "where is the key"}]}
    request = asked("1", "", content=content)
    row = {"id": "mine", "role": "HUMAN", "content": "where is the key"}
    others = [row | {"id": "in_1"}, row | {"role": "AI"}, row | {"content": "something else"}]
    async with inputs(place, sql) as (recorder, history):
        assert await recorder.record_input(request, read_rows([row])) is None
        assert not await history.get_history("o", 100)

        assert await recorder.record_input(request, read_rows(others)) is None
        assert len(await history.get_history("o", 100)) == 1


@one_server
async def test_an_input_that_was_not_stored_is_reported(place: Place, sql: Sql) -> None:
    """Where a given id is another row's, the response, the log and a metric say so."""
    content = {"history": [{"id": "mine", "content": "where is the key"}]}
    request = asked("1", "", content=content)
    metrics = Noted()
    async with inputs(place, sql, metrics) as (recorder, history):
        await history.append("o", [{"id": "mine", "role": "HUMAN", "content": "something else"}])
        with capture_logs() as lines:
            warning = await recorder.record_input(request)

        assert len(await history.get_history("o", 100)) == 1
    assert warning
    assert warning.code == "input_not_stored"
    assert [line["event"] for line in lines] == ["recorder.conflict"]
    assert metrics.counted == ["rows_not_stored input"]


@one_server
async def test_an_input_has_a_time_that_can_be_read(place: Place, sql: Sql) -> None:
    """Its own, else the client's, else that of receipt; an export can be imported again."""
    moment = "2025-06-01T10:00:00Z"
    times = [("yesterday", 1764170000), (moment, "yesterday"), ("yesterday", moment)]
    async with inputs(place, sql) as (recorder, history):
        for number, (own, clients) in enumerate(times):
            content = {
                "history": [{"id": f"i{number}", "content": "hi", "timestamp": own}],
                "metadata": {"client_timestamp_utc": clients},
            }
            raw = {"id": str(number), "owner_key": "o", "content": content}
            received = {"received_at": stamp()}
            await recorder.record_input(BuildRequest.model_validate(raw, context=received))
        rows = await history.rows("o", ["i0", "i1", "i2"])

    assert [row["timestamp"] for row in rows] == [stamp().isoformat(), moment, moment]
