"""What the SQL store promises beyond the contract: totals, indexes, revisions, clear errors."""

import asyncio
import itertools
import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import ClauseElement, Connection
from sqlalchemy.dialects import sqlite

from formatters.model import Row
from service.adapters.sql import engine as sql_engine
from service.adapters.sql.engine import Database
from service.adapters.sql.migrate import current, upgrade
from service.adapters.sql.queries import BY_IDS, CONVERSATION, FALL, IDS_AT_ONCE, OWNER, PRUNE
from service.adapters.sql.retention import DELETE, EXPIRED, LEFT, NEXT_OWNER
from service.adapters.sql.schema import metadata
from service.adapters.sql.store import open_sql_store
from service.errors import InvalidRequestError, StoreError
from service.marks import Archiving

RECEIPT = datetime(2025, 6, 1, 12, tzinfo=UTC)
#: The newest revision of the schema.
NEWEST = "0004"
MIGRATIONS = Path(sql_engine.__file__).with_name("migrations")


class Words:
    """Counts words."""

    name = "words"
    exact = False

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(text.split())


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
    """Make a row of history with so many words."""
    return {"id": name, "role": "HUMAN", "content": "w " * words, "timestamp": when, **fields}


def assert_totals_are_a_recount(file: Path) -> None:
    """Add up all rows of a database and compare with the totals that stand in them."""
    with closing(sqlite3.connect(file)) as database:
        stored = database.execute(
            "SELECT owner_key, conversation_id, pruned, printed_tokens, owner_rows, owner_tokens,"
            " conversation_rows, conversation_tokens FROM messages"
            " ORDER BY owner_key, sort_time, sequence"
        ).fetchall()
    sums: dict[tuple[str, str | None], list[int]] = {}
    for owner, conversation, pruned, tokens, *totals in stored:
        for scope in {None, conversation}:
            of_scope = sums.setdefault((owner, scope), [0, 0])
            of_scope[0] += 1 - pruned
            of_scope[1] += (1 - pruned) * tokens
        of_conversation = sums[owner, conversation] if conversation is not None else [0, 0]
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


def test_totals_equal_a_recount(file: Path, url: str) -> None:
    """Interleaved, late, repeated and pruned rows leave totals as counting all would make them."""
    owners = itertools.count()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        stores = runner.run(stack.enter_async_context(open_sql_store(url, Words(), receipt)))

        async def change(batches: list[Batch]) -> None:
            owner = f"owner {next(owners)}"
            for batch, pruned, restored in batches:
                await stores.history.append(owner, batch)
                await stores.history.prune(owner, pruned)
                await stores.history.restore(owner, restored)

        @settings(max_examples=30, deadline=None)
        @given(batches=st.lists(batch, max_size=6))
        def check(batches: list[Batch]) -> None:
            runner.run(change(batches))
            assert_totals_are_a_recount(file)

        check()
        runner.run(stack.aclose())


async def test_a_late_row_shifts_the_totals_after_it(file: Path, url: str) -> None:
    """A row that sorts before others is counted by them, in its owner and its conversation."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row("b", at(2)), row("d", at(4))], conversation_id="x")
        await stores.history.append("o", [row("c", at(3))], conversation_id="y")
        await stores.history.append("o", [row("a", at(1), 5)], conversation_id="x")

        assert (await stores.history.recent("o", "x")).total == 3
    assert_totals_are_a_recount(file)


async def test_counts_are_stored_with_the_tokenizer(file: Path, url: str) -> None:
    """A message keeps its tokens, those printed of it, and whose tokens they are."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row("a", at(1), 400), row("b", at(2), 3, role="TOOL")])
    with closing(sqlite3.connect(file)) as database:
        columns = "tokenizer, tokens, printed_tokens, sequence"
        found = database.execute(f"SELECT {columns} FROM messages ORDER BY id").fetchall()  # noqa: S608 - columns of this test

    assert found == [("words", 400, 249, 1), ("words", 3, 0, 2)]


async def test_two_engines_write_one_file(file: Path, url: str) -> None:
    """Two processes' worth of connections append to one owner: nothing lost, totals exact."""
    async with (
        open_sql_store(url, Words(), receipt) as first,
        open_sql_store(url, Words(), receipt) as second,
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
    assert_totals_are_a_recount(file)


async def test_a_cancelled_append_leaves_no_half(file: Path, url: str) -> None:
    """An append that is cancelled at any step is there whole or not at all, and can be repeated."""
    batch = [row("a", at(1)), row("b", at(2))]
    async with open_sql_store(url, Words(), receipt) as stores:
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
    assert_totals_are_a_recount(file)


async def test_closing_waits_for_what_still_runs(file: Path, url: str) -> None:
    """An append that nobody waits for any more is whole when the store has been closed."""
    for steps in range(2, 12):
        async with open_sql_store(url, Words(), receipt) as stores:
            append = asyncio.create_task(stores.history.append(f"owner {steps}", [row("a", at(1))]))
            for _ in range(steps):
                await asyncio.sleep(0)
            append.cancel()
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM messages").fetchone() == (10,)
    assert_totals_are_a_recount(file)


async def test_a_cancelled_read_gives_its_place_back(url: str) -> None:
    """More reads than run at a time may be cancelled, and the next one works."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
        for steps in range(3 * sql_engine.READERS):
            read = asyncio.create_task(stores.history.recent("o"))
            for _ in range(steps):
                await asyncio.sleep(0)
            read.cancel()
            await asyncio.wait([read])
        assert (await stores.history.recent("o")).total == 1


async def test_readers_and_a_writer_do_not_block_one_another(file: Path, url: str) -> None:
    """The file is in WAL mode."""
    await upgrade(url)
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_many_readers_share_the_connections(url: str) -> None:
    """Reads beyond those that run at a time wait, beside a writer."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(stores.history.recent("o")) for _ in range(40)]
            tasks.create_task(stores.history.append("p", [row("a")]))
        assert {read.result().total for read in reads} == {1}


async def test_two_engines_tell_of_a_row_once(url: str) -> None:
    """Of two processes that find the same rows left out at the same time, each row is one's."""
    names = [f"m{number}" for number in range(60)]
    async with (
        open_sql_store(url, Words(), receipt) as first,
        open_sql_store(url, Words(), receipt) as second,
    ):
        await first.history.append("o", [row(name) for name in names])
        async with asyncio.TaskGroup() as tasks:
            told = [
                tasks.create_task(stores.history.fell_out("o", names[start : start + 20]))
                for start in range(0, 60, 10)
                for stores in (first, second)
            ]
        assert sorted(name for each in told for name in each.result()) == sorted(names)


async def test_old_copies_of_every_owner_go(url: str) -> None:
    """Whoever archives deletes what is too old, also of owners who never come back."""
    note = Archiving(
        reasons={"a": "older"}, run_id="r", build_id="b", retention=timedelta(seconds=60)
    )
    moment = [RECEIPT]
    async with open_sql_store(url, Words(), lambda: moment[0]) as stores:
        for owner in "op":
            await stores.history.append(owner, [row("a")])
        await stores.history.fell_out("o", ["a"], archiving=note)
        moment[0] += timedelta(seconds=61)
        await stores.history.fell_out("p", ["a"], archiving=note)

        assert await stores.history.archived("o", 10) == []
        assert len(await stores.history.archived("p", 10)) == 1


# --- indexes ---------------------------------------------------------------------------------


def plan(file: Path, statement: ClauseElement) -> list[str]:
    """Return the steps on the table of messages, and those that sort."""
    compiled = statement.compile(dialect=sqlite.dialect(paramstyle="named"))
    values = {name: 1 if value is None else value for name, value in compiled.params.items()}
    with closing(sqlite3.connect(file)) as database:
        steps = [step for *_, step in database.execute(f"EXPLAIN QUERY PLAN {compiled}", values)]
    return [step for step in steps if "messages" in step or "TEMP" in step]


@pytest.mark.parametrize("rows_stored", [0, 3000])
async def test_every_statement_is_bounded_by_an_index(
    file: Path, url: str, rows_stored: int
) -> None:
    """Pages, newest rows and recounts search one range of an index of their scope; none sorts."""
    async with open_sql_store(url, Words(), receipt) as stores:
        batch = [row(str(n), at(n % 60)) for n in range(rows_stored)]
        await stores.history.append("o", batch, conversation_id="x")
    with closing(sqlite3.connect(file)) as database:
        database.execute("ANALYZE")

    search = "SEARCH messages USING INDEX messages_by_"
    for statements, name, keys in (
        (OWNER, "owner", "owner_key=?"),
        (CONVERSATION, "conversation", "owner_key=? AND conversation_id=?"),
    ):
        # the newest row, and the oldest for what has expired before it: rows and tokens
        assert plan(file, statements.newest) == [f"{search}{name} ({keys})"] * 3
        assert plan(file, statements.place) == [
            "SEARCH messages USING INDEX sqlite_autoindex_messages_1 (owner_key=? AND id=?)",
            f"{search}{name} ({keys})",
        ]
        assert plan(file, statements.page) == [
            f"{search}{name}_tokens ({keys} AND pruned=? AND {name}_tokens>?)"
        ]
        before = f"{search}{name} ({keys} AND (sort_time,sequence)<(?,?))"
        assert plan(file, statements.recount) == [
            f"{search}{name} ({keys} AND (sort_time,sequence)>(?,?))",
            before,
            before,
            "SEARCH messages USING COVERING INDEX sqlite_autoindex_messages_1"
            " (owner_key=? AND id=?)",
        ]


async def test_what_expires_is_found_by_an_index(file: Path, url: str) -> None:
    """The oldest row of all, the oldest of an owner, and rows by their ids; none sorts."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row(str(n), at(n % 60)) for n in range(3000)])
    with closing(sqlite3.connect(file)) as database:
        database.execute("ANALYZE")

    search = "SEARCH messages USING"
    assert plan(file, NEXT_OWNER) == [f"{search} INDEX messages_by_time (sort_time<?)"]
    assert plan(file, EXPIRED) == [
        f"{search} INDEX messages_by_owner (owner_key=? AND sort_time<?)"
    ]
    assert plan(file, LEFT) == [f"{search} COVERING INDEX messages_by_owner (owner_key=?)"]


@pytest.mark.parametrize("statement", [BY_IDS, PRUNE, FALL, DELETE[0]])
async def test_rows_with_ids_are_found_one_by_one(
    file: Path, url: str, statement: ClauseElement
) -> None:
    """However many ids there are, and however long the history, nothing else is read."""
    await upgrade(url)
    compiled = str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))
    listed = ", ".join(f"'m{number}'" for number in range(IDS_AT_ONCE))
    text = compiled.replace("(__[POSTCOMPILE_ids])", f"({listed})")
    assert text != compiled
    with closing(sqlite3.connect(file)) as database:
        values = dict.fromkeys(re.findall(r":(\w+)", text), 1)
        steps = [step for *_, step in database.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    key = "sqlite_autoindex_messages_1 (owner_key=? AND id=?)"
    assert steps == [f"SEARCH messages USING INDEX {key}"]


# --- revisions -------------------------------------------------------------------------------


def with_config(connection: Connection) -> Config:
    """Return an Alembic configuration for a connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


async def test_the_revisions_make_the_tables_of_the_code(url: str) -> None:
    """After an upgrade, Alembic finds nothing that the tables in the code have otherwise."""
    await upgrade(url)
    database = Database(url)
    differences = await database.read(
        lambda connection: connection.run_sync(
            lambda sync: compare_metadata(MigrationContext.configure(sync), metadata)
        )
    )
    await database.close()
    assert differences == []


async def test_current_tells_the_revision_and_makes_nothing(file: Path, url: str) -> None:
    """There is no revision before the first upgrade, and no file either."""
    assert await current(url) is None
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(f"file:{file}?mode=ro", uri=True)

    await upgrade(url)
    assert await current(url) == NEWEST


async def test_upgrading_again_changes_nothing(url: str) -> None:
    """A database at the newest revision keeps its rows."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row("a", at(1))])
    await upgrade(url)
    async with open_sql_store(url, Words(), receipt) as stores:
        assert (await stores.history.recent("o")).total == 1


async def test_rows_of_an_older_schema_are_read_and_pruned(file: Path, url: str) -> None:
    """A database of the first revision keeps its rows and totals when it is upgraded."""
    async with open_sql_store(url, Words(), receipt) as stores:
        await stores.history.append("o", [row(str(n), at(n)) for n in range(5)])
        await stores.history.prune("o", ["0"])
    database = Database(url)
    await database.write(
        lambda connection: connection.run_sync(
            lambda sync: command.downgrade(with_config(sync), "0001")
        )
    )
    await database.close()

    async with open_sql_store(url, Words(), receipt) as stores:
        assert await stores.history.prune("o", ["4"]) == 1
        page = await stores.history.recent("o", max_tokens=3)
        # the first revision knows no pruned rows: the one that was is shown again
        assert ([each["id"] for each in page.rows], page.total) == (["3", "2"], 4)
        assert await stores.history.restore("o", ["4"]) == 1
    assert (await current(url)) == NEWEST


async def test_upgrades_that_start_together_are_one(url: str) -> None:
    """Of several processes that open a new database, each finds it complete."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(upgrade(url))
    assert await current(url) == NEWEST


async def test_a_downgrade_takes_everything_back(file: Path, url: str) -> None:
    """Down to the base nothing is left, and up again all is there."""
    await upgrade(url)
    database = Database(url)
    await database.write(
        lambda connection: connection.run_sync(
            lambda sync: command.downgrade(with_config(sync), "base")
        )
    )
    await database.close()
    with closing(sqlite3.connect(file)) as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
    assert not tables & set(metadata.tables)

    await upgrade(url)
    assert await current(url) == NEWEST


async def test_a_database_of_a_newer_version_is_refused(file: Path, url: str) -> None:
    """An unknown revision is named, and the file stays as it is."""
    await upgrade(url)
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()

    with pytest.raises(StoreError, match="9999"):
        await upgrade(url)
    assert await current(url) == "9999"


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Return the root logger with a level and a handler of its own, and put it back."""
    logger = logging.getLogger()
    handler, level = logging.NullHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    yield logger
    logger.removeHandler(handler)
    logger.setLevel(level)


async def test_an_upgrade_leaves_logging_alone(url: str, root_logger: logging.Logger) -> None:
    """Handlers, levels and loggers are after an upgrade as they were before."""
    mine = logging.getLogger("service.test")
    before = list(root_logger.handlers), root_logger.level, mine.disabled
    await upgrade(url)
    assert (list(root_logger.handlers), root_logger.level, mine.disabled) == before


async def test_a_folder_with_a_percent_sign_works(tmp_path: Path) -> None:
    """A path is never read as a template or as a part of a URL."""
    folder = tmp_path / "50% of #1?"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        await upgrade("sqlite:///history.db")
    assert (folder / "history.db").exists()


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
        ("postgresql://user:secret@host/db", "postgresql"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused(bad: str, cause: str) -> None:
    """The error says what is wrong, and shows no password."""
    with pytest.raises(StoreError, match=cause) as caught:
        await open_sql_store(bad, Words(), receipt).__aenter__()
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
    with pytest.raises(StoreError, match="unable to open"):
        asyncio.run(upgrade(f"sqlite:///{tmp_path}"))


async def test_a_locked_database_is_a_store_error(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits too long for another process gets an error that may be tried again; reads go on."""
    monkeypatch.setattr(sql_engine, "BUSY_SECONDS", 0.01)
    async with open_sql_store(url, Words(), receipt) as stores:
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
    async with open_sql_store(url, Words(), receipt) as stores:
        with closing(sqlite3.connect(file)) as other:
            other.execute("DROP TABLE messages")
        with pytest.raises(StoreError, match="no such table") as caught:
            await stores.history.append("owner-secret", [row("a", at(1), content="my secret")])
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_refused_request_is_no_store_error(url: str) -> None:
    """What callers did wrong is told apart from what the database did."""
    async with open_sql_store(url, Words(), receipt) as stores:
        with pytest.raises(InvalidRequestError):
            await stores.history.append("o", [row("")])
