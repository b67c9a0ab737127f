"""The schema of the SQL store: its revisions, who makes them, and what is refused."""

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.testing import capture_logs
from typer.testing import CliRunner

from service.adapters.sql.databases import MIGRATIONS, REVISIONS, open_database, read_revision
from service.adapters.sql.migrate import check, reindex, upgrade
from service.adapters.sql.queries import ChangedRow, index_rows, unindex_rows
from service.adapters.sql.reindexing import index_next, reindex_next
from service.adapters.sql.schema import metadata
from service.adapters.sql.store import open_sql_store
from service.cli.root import app
from service.errors import SchemaError, StoreError
from service.ports.stores import SearchRequest
from tests.postgres_server import PostgresServer
from tests.stores import Clock, Words
from tests.support import quiet_logs

#: The newest revision of the schema.
NEWEST = "0008"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a database may be made."""
    return tmp_path / "history.db"


@pytest.fixture
def sqlite_url(file: Path) -> str:
    """Return the URL of a file that is not there yet."""
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database of each kind that has no tables yet."""
    name = "sqlite_url" if request.param == "sqlite" else "new_database"
    found: str = request.getfixturevalue(name)
    return found


async def change(url: str, work: Callable[[Connection], Any]) -> Any:
    """Do work on a database, and commit it."""
    database = open_database(url)
    try:
        return await database.write(lambda connection: connection.run_sync(work))
    finally:
        await database.aclose()


async def execute(url: str, *statements: str) -> None:
    """Run statements."""

    def run(connection: Connection) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)

    await change(url, run)


#: The statements that undo each revision, the newest first. Only tests downgrade.
TAKEN_BACK = {
    "0008": ["DROP TABLE vector_queue", "DROP TABLE vectors"],
    "0007": ["ALTER TABLE indexing DROP COLUMN rules", "DROP TABLE index_rules"],
    "0006": [
        f"ALTER TABLE messages DROP COLUMN {name}"
        for name in ("native_tokens", "owner_native", "conversation_native")
    ],
    "0005": [
        "DROP TABLE IF EXISTS full_text",  # of SQLite
        *("DROP TABLE indexing", "DROP TABLE term_counts", "DROP TABLE searched"),
    ],
    "0004": ["DROP INDEX messages_by_time"],
    "0003": ["DROP TABLE claims", "DROP TABLE summaries"],
    "0002": [
        "DROP TABLE archive",
        "DROP TABLE fallen",
        "DROP INDEX messages_by_owner_tokens",
        "DROP INDEX messages_by_conversation_tokens",
        "ALTER TABLE messages DROP COLUMN pruned",
        "CREATE INDEX messages_by_owner_tokens"
        " ON messages (owner_key, owner_tokens, sort_time, sequence)",
        "CREATE INDEX messages_by_conversation_tokens"
        " ON messages (owner_key, conversation_id, conversation_tokens, sort_time, sequence)",
    ],
    "0001": ["DROP TABLE messages", "DROP TABLE profiles", "DROP TABLE owners"],
}


async def downgrade(url: str, revision: str) -> None:
    """Take a database of the newest revision back to an older one, or to "base"."""

    def run(connection: Connection) -> None:
        for name, statements in TAKEN_BACK.items():
            for statement in statements if revision == "base" or name > revision else ():
                connection.exec_driver_sql(statement)
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.stamp(config, revision)

    await change(url, run)


def row(number: int) -> dict[str, object]:
    """Return a row of two words."""
    return {"id": str(number), "role": "HUMAN", "content": "w w", "timestamp": f"2025-01-0{number}"}


async def test_the_revisions_make_the_tables_of_the_code(url: str) -> None:
    """After an upgrade nothing differs from the tables in the code."""
    await upgrade(url)
    assert await check(url) == await read_revision(url) == NEWEST


def test_revisions_are_known_by_their_files() -> None:
    """Their names begin with what Alembic reads in them, the oldest first."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    newest_first = ScriptDirectory.from_config(config).walk_revisions()
    assert [each.revision for each in newest_first][::-1] == REVISIONS


async def test_names_are_compared_byte_by_byte(new_database: str) -> None:
    """On Postgres every column that rows are found by has the collation of bytes."""
    await upgrade(new_database)

    def collations(connection: Connection) -> set[tuple[str, object]]:
        looked = inspect(connection)
        return {
            (column["name"], getattr(column["type"], "collation", None))
            for table in metadata.tables
            for column in looked.get_columns(table)
            if column["name"] in {"owner_key", "id", "conversation_id", "first_id"}
        }

    found = await change(new_database, collations)
    assert {collation for _, collation in found} == {"C"}
    assert len(found) == 4


async def test_current_reports_the_revision_and_makes_nothing(file: Path, url: str) -> None:
    """There is no revision before the first upgrade, and no file either."""
    assert await read_revision(url) is None
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(f"file:{file}?mode=ro", uri=True)

    await upgrade(url)
    assert await read_revision(url) == NEWEST


async def test_upgrading_again_changes_nothing(url: str) -> None:
    """A database at the newest revision keeps its rows."""
    await upgrade(url)
    async with open_sql_store(url, Words, Clock()) as stores:
        await stores.history.append("o", [row(1)])
    await upgrade(url)
    async with open_sql_store(url, Words, Clock()) as stores:
        assert (await stores.history.recent("o")).total == 1


async def test_rows_of_an_older_schema_are_read_and_pruned(url: str) -> None:
    """A database of the first revision keeps its rows and totals when it is upgraded."""
    await upgrade(url)
    async with open_sql_store(url, Words, Clock()) as stores:
        await stores.history.append("o", [row(n) for n in range(1, 6)])
        await stores.history.prune("o", ["1"])
    await downgrade(url, "0001")

    await upgrade(url)
    async with open_sql_store(url, Words, Clock()) as stores:
        assert await stores.history.prune("o", ["5"]) == 1
        page = await stores.history.recent("o", max_tokens=3)
        # the first revision knows no pruned rows: the one that was is shown again
        assert ([each["id"] for each in page.rows], page.total) == (["4", "3"], 4)
        assert await stores.history.restore("o", ["5"]) == 1
    assert await read_revision(url) == NEWEST


async def test_rows_of_an_older_schema_have_places_as_native_messages(url: str) -> None:
    """By their texts, which the older schema has counted; a row that comes goes on from there."""
    await upgrade(url)
    async with open_sql_store(url, Words, Clock()) as stores:
        await stores.history.append("o", [row(n) for n in range(1, 5)], conversation_id="x")
        await stores.history.prune("o", ["2"])
    await downgrade(url, "0005")

    await upgrade(url)
    async with open_sql_store(url, Words, Clock()) as stores:
        await stores.history.append("o", [row(5), row(6)], conversation_id="x")
        for conversation in (None, "x"):
            page = await stores.history.recent("o", conversation)
            assert page.native_starts == (24, 18, 12, 6, 0)


async def terms(url: str) -> list[tuple[Any, ...]]:
    """Return what rows are found by, and how many have each term."""
    queries = (
        "SELECT owner_key, sequence, sort_time, id, terms FROM searched ORDER BY 1, 2",
        "SELECT owner_key, term, rows FROM term_counts ORDER BY 1, 2",
    )

    def read(connection: Connection) -> list[tuple[Any, ...]]:
        return [tuple(each) for query in queries for each in connection.exec_driver_sql(query)]

    found: list[tuple[Any, ...]] = await change(url, read)
    return found


def counts(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return of what rows are found by how many have each term."""
    return [each for each in found if len(each) == 3]


async def fill(url: str) -> None:
    """Store rows of two owners, one of them pruned."""
    async with open_sql_store(url, Words, Clock()) as stores:
        for owner in ("o", "p"):
            rows = [{**row(number), "content": "a boat"} for number in range(1, 8)]
            await stores.history.append(owner, rows, conversation_id="x")
        await stores.history.prune("p", ["2"])


async def test_rows_of_an_older_schema_are_found(url: str) -> None:
    """An upgrade indexes what was stored before there was an index, but for pruned rows."""
    await upgrade(url)
    await fill(url)
    before = await terms(url)
    await downgrade(url, "0004")

    await upgrade(url)

    assert await terms(url) == before
    assert len(before) == 13 + 6
    async with open_sql_store(url, Words, Clock()) as stores:
        found = await stores.history.search("p", "x", SearchRequest(["boat"], "7", 9))
        assert [each["id"] for each in found] == ["6", "5", "4", "3", "1"]


async def test_an_upgrade_that_was_ended_goes_on(url: str) -> None:
    """What is indexed already, by it or by a worker meanwhile, stays as it is."""
    await upgrade(url)
    await fill(url)
    before = await terms(url)
    await execute(
        url,
        "DELETE FROM searched WHERE owner_key = 'o'",
        "DELETE FROM term_counts WHERE owner_key = 'o'",
        "INSERT INTO indexing VALUES ('', '', NULL)",
    )
    with pytest.raises(SchemaError, match="rows are not indexed yet"):
        await check(url)
    database = open_database(url)
    assert await database.write(index_next)
    await database.aclose()
    with pytest.raises(SchemaError, match="rows are not indexed yet"):
        await check(url)

    await upgrade(url)

    assert await check(url) == NEWEST
    assert await terms(url) == before


async def made_by_others(url: str) -> None:
    """Have all rows of the first owner found by a term that nobody makes any more."""

    async def work(connection: AsyncConnection) -> None:
        await unindex_rows(connection, "o", range(1, 8))
        old = [(ChangedRow("x", sort_time=n, sequence=n, id=str(n)), ["old"]) for n in range(1, 8)]
        await index_rows(connection, "o", old)

    database = open_database(url)
    await database.write(work)
    await database.aclose()
    await execute(url, "UPDATE index_rules SET rules = '0-old'")


OUTDATED = {"event": "store.terms_outdated", "command": "ctxb db reindex", "log_level": "warning"}


async def logged_at_start(url: str) -> list[Any]:
    """Return what is logged as a store is opened."""
    with capture_logs() as logs:
        await _opened(url)
    return list(logs)


async def test_an_index_of_other_rules_is_made_again(url: str) -> None:
    """A start logs it; finished work stays, and so do rows of today's rules."""
    await upgrade(url)
    await fill(url)
    before = await terms(url)
    await made_by_others(url)
    with pytest.raises(SchemaError, match="rules of another version: run `ctxb db reindex`"):
        await check(url)
    database = open_database(url)
    steps = [await database.write(reindex_next) for _ in range(2)]
    await database.aclose()
    assert steps == [0, 7]
    assert await logged_at_start(url) == [OUTDATED]

    assert await reindex(url) == 0
    assert await logged_at_start(url) == []
    assert await check(url) == NEWEST
    async with open_sql_store(url, Words, Clock()) as stores:
        found = await stores.history.search("o", "x", SearchRequest(["boat"], "7", 9))
        assert [each["id"] for each in found] == ["6", "5", "4", "3", "2", "1"]
    assert counts(await terms(url)) == counts(before)


async def test_tool_results_and_calls_of_older_rules_are_indexed(url: str) -> None:
    """Rules up to 2 left them out; what is said stays as it is."""
    await upgrade(url)
    call = {"id": "1", "name": "look", "arguments": {"where": "lake"}}
    called = {"role": "AI", "content": "", "metadata": {"tool_calls": [call]}}
    result = {"role": "TOOL", "content": "a boat"}
    rows = [{**row(1), "content": "hi"}, {**row(2), **called}, {**row(3), **result}, row(4)]
    async with open_sql_store(url, Words, Clock()) as stores:
        await stores.history.append("o", rows)
    before = await terms(url)
    database = open_database(url)
    await database.write(lambda connection: unindex_rows(connection, "o", [2, 3]))
    await database.aclose()
    await execute(url, "UPDATE index_rules SET rules = '2-bd9795340947'")
    assert await logged_at_start(url) == [OUTDATED]

    assert await reindex(url) == 2

    assert counts(await terms(url)) == counts(before)
    async with open_sql_store(url, Words, Clock()) as stores:
        for word in ("boat", "lake"):
            found = await stores.history.search("o", None, SearchRequest([word], "4", 9))
            assert [each["id"] for each in found] == ["3", "2", "1"]


async def test_a_pass_for_rules_that_have_changed_again_begins_again(url: str) -> None:
    """And two that run at the same time are one."""
    await upgrade(url)
    await fill(url)
    await made_by_others(url)
    await execute(url, "INSERT INTO indexing VALUES ('z', 'z', '0-older')")

    changed = await asyncio.gather(reindex(url), reindex(url))

    assert sum(changed) == 7
    assert await check(url) == NEWEST
    assert await reindex(url) == 0


async def test_a_new_database_is_of_todays_rules(url: str) -> None:
    """Whatever they were when the revision was written."""
    await upgrade(url)
    await execute(url, "UPDATE index_rules SET rules = '0-old'")

    await upgrade(url)

    assert await logged_at_start(url) == []


async def test_upgrades_that_start_together_are_one(url: str) -> None:
    """Of ten workers that open a new database, each finds it complete."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(upgrade(url))
    assert await check(url) == NEWEST


async def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    """An unknown revision is named by all that open it, and stays as it is."""
    await upgrade(url)
    await execute(url, "UPDATE alembic_version SET version_num = '9999'")

    for refused in (upgrade(url), check(url), _opened(url)):
        with pytest.raises(
            SchemaError, match=r"9999, which this version .* does not know"
        ) as error:
            await refused
        assert not error.value.retryable
    assert await read_revision(url) == "9999"


async def _opened(url: str) -> None:
    async with open_sql_store(url, Words, Clock()):
        pass


async def test_a_worker_does_not_upgrade_postgres(new_database: str) -> None:
    """It says which command does, where there is no schema and where it is an older one."""
    with pytest.raises(SchemaError, match="no schema yet: run `ctxb db upgrade`"):
        await _opened(new_database)
    await upgrade(new_database)
    await downgrade(new_database, "0002")
    with pytest.raises(SchemaError, match=r"0002, which is older than 0008: run `ctxb db upgrade`"):
        await _opened(new_database)
    assert await read_revision(new_database) == "0002"


async def test_a_worker_upgrades_a_file(sqlite_url: str) -> None:
    """A file belongs to the service, which brings it to the newest schema by itself."""
    await upgrade(sqlite_url)
    await downgrade(sqlite_url, "0002")
    await _opened(sqlite_url)
    assert await check(sqlite_url) == NEWEST


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        ("DROP INDEX messages_by_owner", "add index messages_by_owner"),
        ("DROP TABLE claims", "add table claims"),
        ("DROP INDEX searched_by_owner", "add index searched_by_owner"),
        ("ALTER TABLE profiles RENAME COLUMN body TO text", "add column profiles body"),
        ("ALTER TABLE fallen ADD COLUMN more INTEGER", "remove column fallen more"),
    ],
)
async def test_tables_that_differ_are_named(url: str, statement: str, reported: str) -> None:
    """A database of the newest revision may still not be ours."""
    await upgrade(url)
    await execute(url, statement)
    with pytest.raises(
        SchemaError, match=f"tables are not those of revision {NEWEST}: .*{reported}"
    ):
        await check(url)


async def test_an_index_of_terms_that_is_missing_is_named(url: str) -> None:
    """It is no table, so that it is looked for by its name."""
    names = {"sqlite": ("TABLE", "full_text"), "postgresql": ("INDEX", "searched_by_term")}
    kind, name = names[url.partition(":")[0]]
    await upgrade(url)
    await execute(url, f"DROP {kind} {name}")
    with pytest.raises(SchemaError, match=f"add {name}"):
        await check(url)


async def test_what_others_add_is_left_alone(url: str) -> None:
    """Tables next to ours and further indexes are no difference."""
    await upgrade(url)
    await execute(
        url, "CREATE TABLE mine (id INTEGER)", "CREATE INDEX my_index ON messages (tokenizer)"
    )
    assert await check(url) == NEWEST


@pytest.fixture
def _logs() -> Iterator[None]:
    """Restore logging after a command."""
    yield
    quiet_logs()


@pytest.mark.usefixtures("_logs")
def test_the_command_says_what_is_wrong(url: str) -> None:
    """`ctxb db check` exits with 1 and a sentence until the schema is ours, then with 0."""

    def ctxb(*words: str, group: str = "db") -> tuple[int, str]:
        ended = CliRunner(env={"CTXB_STORE__URL": url}).invoke(app, [group, *words])
        return ended.exit_code, ended.output

    code, said = ctxb("check")
    assert code == 1
    assert re.fullmatch(r"error: .*(?:no database|no schema) yet: run `ctxb db upgrade`\n", said)
    assert ctxb("upgrade") == (0, f"{NEWEST} (was empty)\n")
    assert ctxb("check") == (0, f"ok: {NEWEST}\n")
    assert ctxb("upgrade") == (0, f"{NEWEST} (no change)\n")
    asyncio.run(fill(url))
    asyncio.run(made_by_others(url))
    code, said = ctxb("check")
    assert code == 1
    assert "run `ctxb db reindex`" in said
    code, said = ctxb("upgrade")
    assert code == 0
    assert re.fullmatch(rf"{NEWEST} \(no change\)\nwarning: .*`ctxb db reindex` once .*\n", said)
    assert ctxb("reindex") == (0, "ok: 7 rows indexed again\n")
    assert ctxb("check") == (0, f"ok: {NEWEST}\n")
    asyncio.run(downgrade(url, "0001"))
    code, said = ctxb("check")
    assert code == 1
    old = "at revision 0001, which is older than 0008: run `ctxb db upgrade`"
    assert old in said
    code, said = ctxb("show", "--owner", "o", group="history")
    assert code == 1
    assert old in said
    assert ctxb("current") == (0, "0001\n")  # a command that reads upgrades nothing


@pytest.mark.usefixtures("_logs")
def test_damage_is_found(file: Path, sqlite_url: str) -> None:
    """Also in pages that hold no table's definition."""
    asyncio.run(upgrade(sqlite_url))
    asyncio.run(fill(sqlite_url))
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_owner'"
        ).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as pages:
        pages.seek((page - 1) * size)
        pages.write(bytes(size))

    ended = CliRunner(env={"CTXB_STORE__URL": sqlite_url}).invoke(app, ["db", "check"])

    assert ended.exit_code == 1
    assert re.fullmatch(rf"error: .*damaged, restore a backup: .*{page}.*\n", ended.output)


@pytest.mark.usefixtures("_logs")
@pytest.mark.parametrize(
    ("revision", "statement", "reported"),
    [
        ("base", "CREATE TABLE owners (owner_key TEXT)", "owners.* already exists"),
        ("0001", "DROP TABLE messages", "messages"),
        ("0003", "INSERT INTO alembic_version VALUES ('0001')", "names several revisions"),
    ],
)
def test_a_broken_schema_is_no_outage(
    url: str, revision: str, statement: str, reported: str
) -> None:
    """`ctxb db upgrade` exits with 1: the database answers, and to wait would not help."""
    asyncio.run(upgrade(url))
    asyncio.run(downgrade(url, revision))
    asyncio.run(execute(url, statement))

    ended = CliRunner(env={"CTXB_STORE__URL": url}).invoke(app, ["db", "upgrade"])

    assert ended.exit_code == 1
    assert re.fullmatch(f"error: .*{reported}.*\n", ended.output)


@pytest.mark.usefixtures("_logs")
def test_a_database_that_is_away_is_an_outage(own_postgres: PostgresServer) -> None:
    """`ctxb db upgrade` exits with 5 where nothing answers."""
    url = own_postgres.url()
    own_postgres.kill()

    ended = CliRunner(env={"CTXB_STORE__URL": url}).invoke(app, ["db", "upgrade"])

    assert ended.exit_code == 5


@pytest.mark.usefixtures("_logs")
def test_a_parameter_that_the_server_does_not_know_is_reported(new_database: str) -> None:
    """As a fault of the configuration: PgBouncer's usual advice, for one, does not work here."""
    url = f"{new_database}?statement_cache_size=0"

    ended = CliRunner(env={"CTXB_STORE__URL": url}).invoke(app, ["db", "upgrade"])

    assert ended.exit_code == 3
    assert ended.output == (
        'error: store.url: unrecognized configuration parameter "statement_cache_size"\n'
    )


@pytest.mark.usefixtures("_logs")
def test_a_pool_that_the_server_cannot_fill_is_reported(new_database: str) -> None:
    """By `ctxb db check`, which the tables pass."""
    asyncio.run(upgrade(new_database))
    asked = {"CTXB_STORE__URL": new_database, "CTXB_LOG__FORMAT": "json"}

    def check_with(pool_size: int) -> tuple[int, str, str]:
        env = {**asked, "CTXB_STORE__POOL_SIZE": str(pool_size)}
        ended = CliRunner(env=env).invoke(app, ["db", "check"])
        return ended.exit_code, ended.stdout, ended.stderr

    assert check_with(10) == (0, f"ok: {NEWEST}\n", "")
    code, said, logged = check_with(1_000)
    assert (code, said) == (0, f"ok: {NEWEST}\n")
    line = json.loads(logged)
    assert line["event"] == "store.pool_too_large"
    assert line["pool_size"] == 1_000 > line["offered"] > 10


@pytest.mark.parametrize("limited", ["ROLE small", "DATABASE {}"])
async def test_a_limit_on_role_or_database_counts(
    postgres: PostgresServer, new_database: str, limited: str
) -> None:
    """Opening the store says what is offered, whichever of the limits is the least."""
    await upgrade(new_database)
    name = new_database.rpartition("/")[2]
    postgres.run("DROP ROLE IF EXISTS small; CREATE ROLE small LOGIN PASSWORD 'p'")
    read = "alembic_version, indexing, index_rules"
    postgres.run(f"GRANT SELECT ON {read} TO small", name)
    postgres.run(f"ALTER {limited.format(name)} CONNECTION LIMIT 7")
    url = f"postgresql://small:p@127.0.0.1:{postgres.port}/{name}"

    with capture_logs() as logs:
        async with open_sql_store(url, Words, Clock()):
            pass
    postgres.run(f"REVOKE ALL ON {read} FROM small; DROP ROLE small", name)

    said = {"event": "store.pool_too_large", "pool_size": 10, "offered": 7}
    assert logs == [{**said, "log_level": "warning"}]


def test_a_role_that_may_not_make_tables_is_reported(
    postgres: PostgresServer, new_database: str
) -> None:
    """What the server refuses is said in its words, and nothing is half made."""
    name = new_database.rpartition("/")[2]
    postgres.run(f"DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN PASSWORD 'pass-word-{name}'")
    postgres.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC", name)
    url = f"postgresql://poor:pass-word-{name}@127.0.0.1:{postgres.port}/{name}"

    with pytest.raises(StoreError, match="permission denied for schema public") as error:
        asyncio.run(upgrade(url))

    assert "pass-word" not in str(error.value)
    assert asyncio.run(read_revision(url)) is None


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


async def test_an_upgrade_leaves_logging_alone(
    sqlite_url: str, root_logger: logging.Logger
) -> None:
    """Handlers, levels and loggers are after an upgrade as they were before."""
    mine = logging.getLogger("service.test")
    before = list(root_logger.handlers), root_logger.level, mine.disabled
    await upgrade(sqlite_url)
    assert (list(root_logger.handlers), root_logger.level, mine.disabled) == before


async def test_a_folder_with_a_percent_sign_works(tmp_path: Path) -> None:
    """A path is never read as a template or as a part of a URL."""
    folder = tmp_path / "50% of #1?"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        await upgrade("sqlite:///history.db")
    assert (folder / "history.db").exists()
