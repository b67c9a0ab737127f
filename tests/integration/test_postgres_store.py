"""Faults that only Postgres has: restarts, waits, refusals, and errors that reveal too much."""

import asyncio
import sys
import traceback
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from service.adapters.sql.databases import open_database
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.store import open_sql_store
from service.app import open_builder
from service.config.endpoints import StoreSettings
from service.config.settings import Settings
from service.connect import open_stores
from service.errors import ConfigError, HistoryUnavailableError, RowRefusedError, StoreError
from service.ports.stores import Archiving, Stores
from service.wire.request import BuildRequest
from tests.integration.test_store_contract import at, row
from tests.postgres_server import PostgresServer
from tests.stores import Clock, Words

HASTY = StoreSettings(statement_timeout_seconds=4.0)  # a busy machine pauses a process for a second
REQUEST = BuildRequest.model_validate(
    {"id": "r", "owner_key": "o", "content": {"current_input": "hello"}}
)


async def test_a_restart_needs_no_new_process(own_postgres: PostgresServer) -> None:
    """While the server is gone reads and writes fail at once and may be tried again; then go on."""
    url = own_postgres.url()
    await upgrade(url)
    strict = Settings.model_validate({"store": {"url": url}})
    lenient = Settings.model_validate({"store": {"url": url}, "gather": {"degrade_history": True}})
    async with (
        open_stores(strict) as stores,
        open_builder(strict) as builder,
        open_builder(lenient) as degrading,
    ):
        await stores.history.append("o", [row("a", at(1))])
        assert (await builder.build_or_raise(REQUEST)).content.kept == 1
        await asyncio.gather(*(stores.history.recent("o") for _ in range(9)))  # fills the pool

        own_postgres.kill()
        for lost in (stores.history.recent("o"), stores.history.append("o", [row("b")])):
            with pytest.raises(StoreError) as caught:
                await lost
            assert caught.value.retryable
            assert "secret-of-tests" not in "".join(traceback.format_exception(caught.value))
        with pytest.raises(HistoryUnavailableError):
            await builder.build_or_raise(REQUEST)
        built = (await degrading.build_or_raise(REQUEST)).content
        assert "history_unavailable" in {warning.code for warning in built.warnings}

        own_postgres.start()
        pages = await asyncio.gather(*(stores.history.recent("o") for _ in range(9)))
        assert {page.total for page in pages} == {1}
        assert await stores.history.append("o", [row("b", at(2))]) == 1
        assert (await builder.build_or_raise(REQUEST)).content.kept == 2

        own_postgres.kill()  # and nobody has noticed when it is back
        own_postgres.start()
        assert (await stores.history.recent("o")).total == 2
        assert await stores.history.append("o", [row("c", at(3))]) == 1


async def test_a_statement_that_waits_too_long_is_given_up(postgres_url: str) -> None:
    """Who holds an owner holds nobody up for longer than the limit, and no other owner at all."""
    async with open_sql_store(postgres_url, Words, Clock(), HASTY) as stores:
        await stores.history.append("o", [row("a", at(1))])
        other = await asyncpg.connect(postgres_url)
        async with other.transaction():
            await other.execute("SELECT FROM owners WHERE owner_key = 'o' FOR UPDATE")
            with pytest.raises(StoreError, match=r"statement timeout \(57014\)") as caught:
                await stores.history.append("o", [row("b", at(2))])
            assert caught.value.retryable
            assert await stores.history.append("p", [row("b", at(2))]) == 1
            assert (await stores.history.recent("o")).total == 1
        await other.close()

        assert await stores.history.append("o", [row("b", at(2))]) == 1


async def test_a_process_that_stopped_in_a_transaction_frees_its_owner(postgres_url: str) -> None:
    """Sessions of the service end where they hold a transaction open and say nothing."""
    async with open_sql_store(postgres_url, Words, Clock(), HASTY) as stores:
        found = await stores.history._database.read(  # type: ignore[attr-defined]
            lambda connection: connection.exec_driver_sql(
                "SELECT current_setting('idle_in_transaction_session_timeout')"
            )
        )
        assert found.scalar_one() == "4s"


async def test_a_change_behind_an_erasure_changes_nothing(postgres_url: str) -> None:
    """What waited for an owner's lock while the owner was erased finds nobody."""
    async with open_sql_store(postgres_url, Words, Clock()) as stores:
        await stores.history.append("o", [row("a", at(1)), row("b", at(2))])
        other = await asyncpg.connect(postgres_url)
        erasing = other.transaction()
        await erasing.start()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            await other.execute("DELETE FROM owners")
            waiting = [
                tasks.create_task(stores.history.prune("o", ["a"])),
                tasks.create_task(stores.history.flag_fallen("o", ["a"])),
                tasks.create_task(stores.history.append("o", [row("c", at(3))])),
                tasks.create_task(stores.summaries.forget("o", ["a"])),
            ]
            await blocked(
                postgres_url, len(waiting) - 1
            )  # this process appends after it has pruned
            await other.execute("DELETE FROM messages")
            await erasing.commit()
        await other.close()

        assert [task.result() for task in waiting] == [0, [], 1, 0]
        page = await stores.history.recent("o", max_tokens=9)
        assert ([each["id"] for each in page.rows], page.total) == (["c"], 1)


async def blocked(url: str, count: int) -> None:
    """Wait until n sessions wait for a lock."""
    connection = await asyncpg.connect(url)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while await connection.fetchval(waiting) < count:  # noqa: ASYNC110 - the server has no event
        await asyncio.sleep(0.01)
    await connection.close()


async def test_errors_reveal_nothing_that_users_said(postgres_url: str) -> None:
    """The server quotes the row that it refuses; neither the error nor its causes do."""
    owner, content = "my owner", "my secret"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("ALTER TABLE messages ADD CONSTRAINT brief CHECK (length(body) < 5)")
    try:
        async with open_sql_store(postgres_url, Words, Clock()) as stores:
            with pytest.raises(RowRefusedError, match=r'"brief" \(23514\)') as caught:
                await stores.history.append(owner, [row("a", at(1), content)])
    finally:
        await admin.execute("ALTER TABLE messages DROP CONSTRAINT brief")
        await admin.close()

    reported = "".join(traceback.format_exception(caught.value))
    assert content not in reported
    assert owner not in reported


class Billions(Words):
    """Counts more tokens than the table has room for."""

    def count(self, text: str) -> int:
        """Return a number that is out of range where the text says so."""
        return 2**31 if "billions" in text else 1


async def test_a_number_out_of_range_is_the_rows_fault(postgres_url: str) -> None:
    """It is no outage that the driver cannot send a value; other rows are stored."""
    async with open_sql_store(postgres_url, Billions, Clock()) as stores:
        with pytest.raises(RowRefusedError) as caught:
            await stores.history.append("o", [row("a", at(1), "billions")])
        assert not caught.value.retryable
        assert await stores.history.append("o", [row("b", at(2))]) == 1


async def expiring(stores: Stores, until: datetime) -> int:
    """Let all rows of before a moment expire, as a worker does, two at a time."""
    gone = 0
    while some := await stores.history.expire(until, 2):
        gone += some
    return gone


async def test_two_workers_expire_at_once(postgres_url: str) -> None:
    """Both end, neither before all is gone, and what each has counted is there once."""
    async with (
        open_sql_store(postgres_url, Words, Clock()) as first,
        open_sql_store(postgres_url, Words, Clock()) as second,
    ):
        for owner in "opqr":
            rows = [row(str(n), at(n)) for n in range(20)]
            await first.history.append(owner, rows)
        until = datetime(2025, 1, 1, 10, 15, tzinfo=UTC)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            workers = [
                tasks.create_task(expiring(stores, until)) for stores in (first, second, first)
            ]
        assert sum(worker.result() for worker in workers) == 4 * 15
        for owner in "opqr":
            page = await first.history.recent(owner, max_tokens=99)
            assert ([each["id"] for each in page.rows], page.total) == (
                ["19", "18", "17", "16", "15"],
                5,
            )


async def test_who_expires_behind_another_goes_on_to_the_next_owner(postgres_url: str) -> None:
    """What another worker has deleted while this one waited is not the end of what is old."""
    async with open_sql_store(postgres_url, Words, Clock()) as stores:
        await stores.history.append("o", [row("a", at(1))])
        await stores.history.append("p", [row("b", at(2))])
        other = await asyncpg.connect(postgres_url)
        erasing = other.transaction()
        await erasing.start()
        await other.execute("DELETE FROM owners WHERE owner_key = 'o'")
        await other.execute("DELETE FROM messages WHERE owner_key = 'o'")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(stores.history.expire(datetime(2025, 1, 2, tzinfo=UTC), 9))
            await blocked(postgres_url, 1)
            await erasing.commit()
        await other.close()

        assert waiting.result() == 1
        assert (await stores.history.recent("p")).total == 0


async def test_copies_that_others_hold_expire_later(postgres_url: str) -> None:
    """Who deletes old copies waits for nobody, and takes no more than it was asked to."""
    clock = Clock()
    names = [str(number) for number in range(9)]
    note = Archiving(reasons=dict.fromkeys(names, "older"), run_id="r", build_id="b")
    async with open_sql_store(postgres_url, Words, clock, HASTY) as stores:
        await stores.history.append("o", [row(name) for name in names])
        await stores.history.flag_fallen("o", names, archiving=note)
        until = clock.now + timedelta(seconds=1)
        other = await asyncpg.connect(postgres_url)
        async with other.transaction():
            held = "SELECT FROM archive WHERE number IN (SELECT min(number) FROM archive)"
            await other.execute(f"{held} FOR UPDATE")
            assert await stores.history.expire_archive(until, 3) == 3
            assert await stores.history.expire_archive(until, 99) == 5
            assert await stores.history.expire_archive(until, 99) == 0
        await other.close()
        assert await stores.history.expire_archive(until, 99) == 1


async def test_nothing_that_changes_a_history_deadlocks(postgres_url: str) -> None:
    """Rows that come, fall out, expire and are erased at once, by two processes, all succeed."""
    clock = Clock()
    names = [str(number) for number in range(12)]
    old = datetime(2025, 1, 1, 10, 6, tzinfo=UTC)
    note = Archiving(reasons=dict.fromkeys(names, "older"), run_id="r", build_id="b")

    async def work(stores: Stores, owner: str) -> None:
        for _ in range(8):
            clock.now += timedelta(seconds=1)
            await stores.history.append(owner, [row(name, at(int(name))) for name in names])
            await stores.history.flag_fallen(owner, names, archiving=note)
            await stores.history.prune(owner, names[:3])
            await stores.history.expire(old, 5)
            await stores.history.expire_archive(clock.now, 5)
            await stores.history.erase(owner)

    async with (
        open_sql_store(postgres_url, Words, clock) as first,
        open_sql_store(postgres_url, Words, clock) as second,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        for stores in (first, second):
            for owner in "opq":
                tasks.create_task(work(stores, owner))


async def test_a_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    """It could not hold what people write; the error says how to make one that can."""
    postgres.run("DROP DATABASE IF EXISTS latin")
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match="latin: its encoding is LATIN1; create it with ENCODING"):
        await upgrade(postgres.url("latin"))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
async def test_every_scheme_opens_all_stores(scheme: str, postgres_url: str) -> None:
    """History, profiles and summaries; parameters are those of libpq."""
    url = scheme + postgres_url.removeprefix("postgresql") + "?sslmode=prefer"
    async with open_stores(Settings.model_validate({"store": {"url": url}})) as stores:
        rows: list[Row] = [row("a", at(1))]
        assert await stores.history.append("o", rows) == 1
        await stores.profiles.put("o", {"a": 1})
        assert await stores.profiles.get("o") == {"a": 1}
        assert await stores.summaries.read("o") == []


@pytest.mark.parametrize(
    ("url", "error", "reported"),
    [
        ("postgresql://u:s3cr/et@h:5432/d", ConfigError, "store.url: cannot be read"),
        ("postgresql://u:s3cret@h:s3cret/d", ConfigError, "store.url: cannot be read"),
        ("postgresql://u:s3cret@h/d?sslmode=s3cret", ConfigError, "store.url: cannot be read"),
        ("postgresql://u:s3cret@127.0.0.1:1/d", StoreError, r"^127.0.0.1:1/d: "),
    ],
)
async def test_a_url_that_cannot_be_used_shows_no_password(
    url: str, error: type[Exception], reported: str
) -> None:
    """Neither in the error nor in what caused it."""
    with pytest.raises(error, match=reported) as caught:
        await open_sql_store(url, Words, Clock()).__aenter__()
    assert "s3cr" not in "".join(traceback.format_exception(caught.value))


async def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver a URL of Postgres is a mistake in the configuration."""
    monkeypatch.delitem(sys.modules, "service.adapters.sql.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    settings = Settings.model_validate({"store": {"url": "postgresql://u:s3cret@h/d"}})
    with pytest.raises(ConfigError, match=r"pip install 'PATH\[postgres\]'"):
        await open_stores(settings).__aenter__()


async def test_planner_settings_are_those_of_the_work(postgres_url: str) -> None:
    """They end with the transaction that needs them, also a failed one; others have none."""

    async def seqscan(connection: AsyncConnection) -> str:
        return str((await connection.exec_driver_sql("SHOW enable_seqscan")).scalar_one())

    # one connection for reading and one for writing: each is used with the settings and without
    async with aclosing(open_database(postgres_url, StoreSettings(pool_size=2))) as database:
        for by_index, expected in ((True, "off"), (False, "on"), (True, "off")):
            assert await database.read(seqscan, by_index=by_index) == expected
            assert await database.write(seqscan, by_index=by_index) == expected
        with pytest.raises(RowRefusedError, match="division by zero"):
            await database.read(lambda c: c.exec_driver_sql("SELECT 1 / 0"), by_index=True)
        assert await database.read(seqscan) == await database.write(seqscan) == "on"


async def test_a_failed_transaction_is_rolled_back(postgres_url: str) -> None:
    """Nothing of it is stored, and its connection serves the next one."""

    async def fail(connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("INSERT INTO profiles VALUES ('o', '{}')")
        await connection.exec_driver_sql("SELECT 1 / 0")

    async def count(connection: AsyncConnection) -> int:
        return int((await connection.exec_driver_sql("SELECT count(*) FROM profiles")).scalar_one())

    database = open_database(postgres_url, StoreSettings(pool_size=2))
    try:
        with pytest.raises(RowRefusedError, match="division by zero"):
            await database.write(fail)
        assert await database.write(count) == 0
        with pytest.raises(StoreError):
            await database.write(
                lambda c: c.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
            )
        assert await database.write(count) == 0
    finally:
        await database.aclose()
