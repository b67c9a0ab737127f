"""What the SQL store promises beyond the contract: totals, transactions, clear errors."""

import asyncio
import gc
import itertools
import sqlite3
import threading
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from service.adapters.sql import sqlite as sql_sqlite
from service.adapters.sql.engine import Database
from service.adapters.sql.local import LEAST_IN_THREADS, MOST_IN_THREADS, SLOW_SECONDS, LocalReader
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.sqlite import READERS, sqlite_driver
from service.adapters.sql.store import open_sql_store
from service.errors import InvalidRequestError, SchemaError, StoreError
from service.ports.stores import Archiving
from tests.stores import RECEIPT, Sql, Words


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a database may be made."""
    return tmp_path / "history.db"


@pytest.fixture
def url(file: Path) -> str:
    """Return the URL of a database that is not there yet."""
    return f"sqlite:///{file}"


def receipt() -> datetime:
    """Return the time at which all rows are received."""
    return RECEIPT


def at(minute: int) -> str:
    """Return a moment of one day as text."""
    return f"2025-01-01T10:{minute:02}:00Z"


def row(name: str, when: str | None = None, words: int = 2, **fields: object) -> Row:
    """Make a row of history with n words."""
    return {"id": name, "role": "HUMAN", "content": "w " * words, "timestamp": when, **fields}


def assert_totals_are_a_recount(sql: Sql) -> None:
    """Add up all rows of a database and compare with the stored totals."""
    stored = sql.ask(
        "SELECT owner_key, conversation_id, pruned, printed_tokens, native_tokens,"
        " owner_rows, owner_tokens, owner_native,"
        " conversation_rows, conversation_tokens, conversation_native FROM messages"
        " ORDER BY owner_key, sort_time, sequence"
    )
    sums: dict[tuple[str, str | None], list[int]] = {}
    for owner, conversation, pruned, tokens, native, *totals in stored:
        for scope in {None, conversation}:
            of_scope = sums.setdefault((owner, scope), [0, 0, 0])
            of_scope[0] += 1 - pruned
            of_scope[1] += (1 - pruned) * tokens
            of_scope[2] += (1 - pruned) * native
        of_conversation = sums[owner, conversation] if conversation is not None else [0, 0, 0]
        assert totals == [*sums[owner, None], *of_conversation]


# --- totals ----------------------------------------------------------------------------------

rows = st.builds(
    row,
    st.integers(0, 15).map(str),
    st.none() | st.integers(0, 6).map(at),
    st.integers(0, 3),
    role=st.sampled_from(["HUMAN", "TOOL"]),
    conversation_id=st.sampled_from([None, "x", "y"]),
)
names = st.lists(st.integers(0, 15).map(str), max_size=4)

#: Rows that are stored, then ids that are pruned, then ids that are restored.
Batch = tuple[list[Row], list[str], list[str]]
batch = st.tuples(st.lists(rows, max_size=6), names, names)


def test_totals_equal_a_recount(sql: Sql) -> None:
    """Interleaved, late, repeated and pruned rows leave totals as counting all would make them."""
    owners = itertools.count()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        stores = runner.run(stack.enter_async_context(open_sql_store(sql.url, Words, receipt)))

        async def change(batches: list[Batch]) -> None:
            owner = f"owner {next(owners)}"
            for batch, pruned, restored in batches:
                await stores.history.append(owner, batch)
                await stores.history.prune(owner, pruned)
                await stores.history.restore(owner, restored)

        @settings(max_examples=15)
        @given(batches=st.lists(batch, max_size=6))
        def check(batches: list[Batch]) -> None:
            runner.run(change(batches))
            assert_totals_are_a_recount(sql)

        check()
        runner.run(stack.aclose())


async def test_a_late_row_shifts_the_totals_after_it(sql: Sql) -> None:
    """A row that sorts before others is counted by them, in its owner and its conversation."""
    async with open_sql_store(sql.url, Words, receipt) as stores:
        await stores.history.append("o", [row("b", at(2)), row("d", at(4))], conversation_id="x")
        await stores.history.append("o", [row("c", at(3))], conversation_id="y")
        await stores.history.append("o", [row("a", at(1), 5)], conversation_id="x")

        assert (await stores.history.recent("o", "x")).total == 3
    assert_totals_are_a_recount(sql)


async def test_counts_are_stored_with_the_tokenizer(sql: Sql) -> None:
    """A message keeps its tokens, those printed of it, and whose tokens they are."""
    async with open_sql_store(sql.url, Words, receipt) as stores:
        await stores.history.append("o", [row("a", at(1), 400), row("b", at(2), 3, role="TOOL")])
    found = sql.ask("SELECT tokenizer, tokens, printed_tokens, sequence FROM messages ORDER BY id")

    assert found == [("words", 400, 249, 1), ("words", 3, 0, 2)]


async def test_two_engines_write_one_file(sql: Sql) -> None:
    """Two processes' worth of connections append to one owner: nothing lost, totals exact."""
    async with (
        open_sql_store(sql.url, Words, receipt) as first,
        open_sql_store(sql.url, Words, receipt) as second,
    ):

        async def write(name: str) -> int:
            history = first.history if name == "x" else second.history
            new = 0
            for n in range(50):
                batch = [row(f"{name}{n}", at(n)), row(f"shared{n}", at(50 - n))]
                new += await history.append("o", batch, conversation_id=name)
            return new

        async with asyncio.TaskGroup() as tasks:
            writers = [tasks.create_task(write(name)) for name in "xy"]

        assert sum(writer.result() for writer in writers) == 150
        assert (await first.history.recent("o")).total == 150
    assert_totals_are_a_recount(sql)


async def test_a_cancelled_append_leaves_no_half(sql: Sql) -> None:
    """An append that is cancelled at any step is there whole or not at all, and can be repeated."""
    batch = [row("a", at(1)), row("b", at(2))]
    async with open_sql_store(sql.url, Words, receipt) as stores:
        for steps in range(60):
            owner = f"owner {steps}"
            append = asyncio.create_task(stores.history.append(owner, batch, conversation_id="x"))
            for _ in range(steps):
                await asyncio.sleep(0)
            append.cancel()
            await asyncio.wait([append])

            assert (await stores.history.recent(owner)).total in {0, 2}
            await stores.history.append(owner, batch, conversation_id="x")
            assert (await stores.history.recent(owner, "x")).total == 2
    assert_totals_are_a_recount(sql)


async def test_closing_waits_for_what_still_runs(sql: Sql) -> None:
    """An append that nobody waits for any more is whole when the store has been closed."""
    for steps in range(2, 12):
        async with open_sql_store(sql.url, Words, receipt) as stores:
            append = asyncio.create_task(stores.history.append(f"owner {steps}", [row("a", at(1))]))
            for _ in range(steps):
                await asyncio.sleep(0)
            append.cancel()
    assert sql.ask("SELECT count(*) FROM messages") == [(10,)]
    assert_totals_are_a_recount(sql)


async def test_a_cancelled_read_gives_its_place_back(sql: Sql) -> None:
    """More reads than run at a time may be cancelled, and the next one works."""
    async with open_sql_store(sql.url, Words, receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
        for steps in range(3 * READERS):
            read = asyncio.create_task(stores.history.recent("o"))
            for _ in range(steps):
                await asyncio.sleep(0)
            read.cancel()
            await asyncio.wait([read])
        assert (await stores.history.recent("o")).total == 1


async def test_a_transaction_that_fails_unheard_is_no_fault_of_ours(url: str) -> None:
    """Where nobody waits any more for a transaction that fails, asyncio has nothing to log."""
    logged: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
    begun, fails = asyncio.Event(), asyncio.Event()

    async def work(_connection: AsyncConnection) -> None:
        begun.set()
        await fails.wait()
        raise DatabaseError("a statement", None, Exception("away"))

    database = Database(sqlite_driver(url))
    reading = asyncio.create_task(database.read(work))
    await begun.wait()
    reading.cancel()
    await asyncio.wait([reading])
    fails.set()
    await database.aclose()
    del reading  # its traceback holds the transaction, which asyncio reports when it is gone
    gc.collect()
    assert logged == []


async def test_a_file_is_read_without_waiting(url: str) -> None:
    """Where work waits for its statements alone, they are executed in the event loop's thread."""

    async def work(connection: AsyncConnection) -> Any:
        rows = (await connection.execute(text("SELECT :number"), {"number": 7})).all()
        return [*rows[0], await connection.scalar(text("SELECT 8")), threading.get_ident()]

    async with aclosing(Database(sqlite_driver(url))) as database:
        assert await database.read(work, at_once=True) == [7, 8, threading.get_ident()]


async def test_after_a_slow_read_others_are_in_threads(file: Path, url: str) -> None:
    """Ever more of them while reads stay slow, up to a limit, and fewer when they are quick."""
    in_time, late = [0.0, SLOW_SECONDS], [0.0, 2 * SLOW_SECONDS]
    times = itertools.accumulate([*in_time, *late * 2, *in_time * 2, *late * 6])
    connect = partial(sqlite3.connect, file, isolation_level=None, check_same_thread=False)
    local = LocalReader(lambda seconds: connect(timeout=seconds), 1.0, lambda: next(times))

    async def find_thread(_connection: AsyncConnection) -> int:
        return threading.get_ident()

    least, most = LEAST_IN_THREADS, MOST_IN_THREADS
    expected = [least, 2 * least, *(min((4 * least - 2) << n, most) for n in range(6))]
    async with aclosing(Database(replace(sqlite_driver(url), local=local))) as database:
        reads = len([*in_time, *late * 2, *in_time * 2, *late * 6]) // 2 + sum(expected)
        threads = [await database.read(find_thread, at_once=True) for _ in range(reads)]
    runs = itertools.groupby(threads, threading.get_ident().__eq__)
    assert [len([*same]) for is_own, same in runs if not is_own] == expected


async def test_a_locked_file_holds_no_other_work_up(file: Path, url: str) -> None:
    """The read waits in a thread, until the lock is released."""
    await upgrade(url)
    async with aclosing(Database(sqlite_driver(url))) as database:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            query = text("SELECT count(*) FROM messages")
            reading = asyncio.create_task(database.read(lambda c: c.scalar(query), at_once=True))
            await asyncio.sleep(0.05)
            assert not reading.done()
        assert await reading == 0


async def test_work_at_once_waits_for_nothing_else(url: str) -> None:
    """It would hold a thread; after it, as after a failing statement, reads go on."""
    async with aclosing(Database(sqlite_driver(url))) as database:
        with pytest.raises(RuntimeError, match="only wait for its statements"):
            await database.read(lambda _connection: asyncio.sleep(0), at_once=True)
        with pytest.raises(SchemaError, match="no such table"):
            await database.read(lambda c: c.scalar(text("SELECT 1 FROM missing")), at_once=True)

        assert await database.read(lambda c: c.scalar(text("SELECT 8")), at_once=True) == 8


async def test_readers_and_a_writer_do_not_block_one_another(file: Path, url: str) -> None:
    """The file is in WAL mode."""
    await upgrade(url)
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_many_readers_share_the_connections(sql: Sql) -> None:
    """Reads beyond those that run at a time wait, next to a writer."""
    async with open_sql_store(sql.url, Words, receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(stores.history.recent("o")) for _ in range(40)]
            tasks.create_task(stores.history.append("p", [row("a")]))
        assert {read.result().total for read in reads} == {1}


async def test_two_engines_report_a_row_once(sql: Sql) -> None:
    """Of two processes that find the same rows left out at the same time, each row is one's."""
    names = [f"m{number}" for number in range(60)]
    async with (
        open_sql_store(sql.url, Words, receipt) as first,
        open_sql_store(sql.url, Words, receipt) as second,
    ):
        await first.history.append("o", [row(name) for name in names])
        async with asyncio.TaskGroup() as tasks:
            reported = [
                tasks.create_task(stores.history.flag_fallen("o", names[start : start + 20]))
                for start in range(0, 60, 10)
                for stores in (first, second)
            ]
        assert sorted(name for each in reported for name in each.result()) == sorted(names)


# --- URLs and errors -------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+aiosqlite"])
def test_urls_name_relative_and_absolute_files(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three slashes are relative, four absolute, with or without the driver's name."""
    monkeypatch.chdir(tmp_path)
    for name in ("relative.db", f"{tmp_path}/absolute.db"):
        asyncio.run(upgrade(f"{scheme}:///{name}"))
    assert {path.name for path in tmp_path.glob("*.db")} == {"relative.db", "absolute.db"}


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        ("no url", "cannot be read"),
        ("mysql://user:secret@host/db", "no SQL store for mysql: URLs"),
        ("sqlite://", "store.url names no file; one is sqlite:///history.db"),
        ("sqlite://ctxb.db", "names no file; one is sqlite:///ctxb.db"),
        ("sqlite://me:secret@ctxb.db", "names no file"),
        ("sqlite://:memory:", "store.url cannot be read"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused(bad: str, cause: str) -> None:
    """The error says what is wrong, and shows no password."""
    with pytest.raises(StoreError, match=cause) as caught:
        await open_sql_store(bad, Words, receipt).__aenter__()
    assert "secret" not in str(caught.value)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A database is made in a folder that exists, and no folder is."""
    folder = tmp_path / "missing"
    with pytest.raises(StoreError, match=f"the folder {folder} does not exist"):
        await upgrade(f"sqlite:///{folder}/history.db")
    assert not folder.exists()


def test_what_is_no_database_is_refused(file: Path, url: str, tmp_path: Path) -> None:
    """A file with something else in it, or a folder, is named with the driver's cause."""
    file.write_text("no database " * 100)
    with pytest.raises(StoreError, match=r"history\.db: file is not a database"):
        asyncio.run(upgrade(url))
    with pytest.raises(StoreError, match=r"unable to open .* have to be writable"):
        asyncio.run(upgrade(f"sqlite:///{tmp_path}"))


async def test_a_locked_database_is_a_store_error(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits too long for another process gets an error that may be tried again; reads go on."""
    monkeypatch.setattr(sql_sqlite, "BUSY_SECONDS", 0.01)
    async with open_sql_store(url, Words, receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked") as caught:
                await stores.history.append("o", [row("b", at(2))])
            assert (await stores.history.recent("o")).total == 1
            other.execute("ROLLBACK")

        assert caught.value.retryable
        assert isinstance(caught.value.__cause__, Exception)
        assert await stores.history.append("o", [row("b", at(2))]) == 1


async def test_errors_show_nothing_that_users_said(file: Path, url: str) -> None:
    """A failed statement's parameters stay out of the error and out of its cause."""
    async with open_sql_store(url, Words, receipt) as stores:
        with closing(sqlite3.connect(file)) as other:
            other.execute("DROP TABLE messages")
        with pytest.raises(StoreError, match="no such table") as caught:
            await stores.history.append("owner-secret", [row("a", at(1), content="my secret")])
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_refused_request_is_no_store_error(url: str) -> None:
    """Errors of callers are distinguished from errors of the database."""
    async with open_sql_store(url, Words, receipt) as stores:
        with pytest.raises(InvalidRequestError):
            await stores.history.append("o", [row("")])


async def test_retention_writes_nothing_where_nothing_has_expired(file: Path, url: str) -> None:
    """It only reads: it goes on where another process holds the lock of the writer."""
    note = Archiving(reasons={"a": "older"}, run_id="r", build_id="b")
    async with open_sql_store(url, Words, receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
        await stores.history.flag_fallen("o", ["a"], archiving=note)
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(60):
                assert await stores.history.expire(datetime.fromisoformat(at(0)), 9) == 0
                assert await stores.history.expire_archive(RECEIPT, 9) == 0
            other.execute("ROLLBACK")
        assert await stores.history.expire_archive(RECEIPT + timedelta(seconds=1), 9) == 1


async def test_a_file_is_opened_and_read_while_others_write(file: Path, url: str) -> None:
    """Nothing is written to a file in which all is in order."""
    async with open_sql_store(url, Words, receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with open_sql_store(url, Words, receipt) as stores:
            assert (await stores.history.recent("o")).total == 1


async def test_a_text_that_cannot_be_decoded_is_an_error_of_the_store(file: Path, url: str) -> None:
    """Python's module raises it, without a code of SQLite's."""
    async with open_sql_store(url, Words, receipt) as stores:
        await stores.profiles.put("o", {"name": "Ann"})
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("UPDATE profiles SET body = CAST(x'7b22ff22' AS TEXT)")
        with pytest.raises(StoreError, match="decode"):
            await stores.profiles.get("o")


async def test_a_slow_statement_is_given_up_and_done_in_a_thread(file: Path) -> None:
    """The event loop waits for none that takes long, and nothing of it is lost."""
    times = itertools.count()
    connect = partial(sqlite3.connect, file, isolation_level=None, check_same_thread=False)
    local = LocalReader(lambda seconds: connect(timeout=seconds), 1.0, lambda: next(times))
    many = text(
        "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
        "SELECT count(*) FROM n"
    )

    async def count(connection: AsyncConnection) -> object:
        return await connection.scalar(many)

    assert local.read_at_once("BEGIN", count) is None
    assert local.read("BEGIN", count) == 9_999
    local.close()
