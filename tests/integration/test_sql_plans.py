"""What the SQL store's statements read: by index, of one owner, and no more than is requested."""

import asyncio
import json
import re
import secrets
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from formatters.model import Row, Summary
from service.adapters.sql.databases import open_database
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.schema import metadata
from service.adapters.sql.store import open_sql_store
from service.app import open_builder
from service.build.history_reader import SEARCHED_ROWS
from service.config.settings import Settings
from service.ports.stores import Archiving, Expected, SearchRequest, Stores, rows_fingerprint
from service.recall.question import QUESTION_TERMS
from service.recall.search import MAX_SINGLE_TERMS, ROWS_PER_HIT, ROWS_TO_CALL
from service.wire.request import BuildRequest
from tests.postgres_server import PostgresServer
from tests.stores import RECEIPT, Clock, Sql, Words

#: Rows of the owner that is asked about, and of each of the others.
MANY, FEW = 1_500, 20
OTHERS = 25
#: Rows that a page asks for.
LIMIT = 40
#: The rows a statement may read for a build: a page, and one at each step on the way to it.
MOST = 2 * LIMIT
#: The same for rows next to hits without tokens, which are read without their texts.
BESIDE_MOST = LIMIT // ROWS_PER_HIT * (ROWS_TO_CALL + 1)
#: Tables of ours, in a plan of SQLite's; the names of subqueries are others.
TABLES = "|".join([*metadata.tables, "full_text"])
#: One row of n has a usual term, so that a search finds as many as it goes on with.
USUAL = 3
NAMES = [f"m{number}" for number in range(MANY - LIMIT, MANY)]


def row(number: int, **fields: object) -> Row:
    """Return a row of two words, a second after the one numbered before it."""
    time = RECEIPT + timedelta(seconds=number)
    return {"id": f"m{number}", "role": "HUMAN", "content": "w w", "timestamp": time, **fields}


@dataclass(frozen=True)
class Asked:
    """A statement as the driver got it."""

    text: str
    values: tuple[Any, ...] | dict[str, Any]
    #: Whether its transaction was planned by index.
    by_index: bool = False


@contextmanager
def recorded() -> Iterator[list[Asked]]:
    """Note what every engine of this process is asked; of many at once the first."""
    asked: list[Asked] = []

    def note(*reported: Any) -> None:
        connection, _, text, values, _, many = reported
        if names_table(text):
            first = tuple(values[0] if many else values)
            asked.append(Asked(text, first, is_planned_by_index(connection)))

    event.listen(Engine, "before_cursor_execute", note)
    NOTED.append(asked)
    yield asked
    NOTED.remove(asked)
    event.remove(Engine, "before_cursor_execute", note)


def names_table(text: str) -> bool:
    """Return whether a statement is about a table of ours."""
    return any(f" {table}" in text for table in metadata.tables)


#: Where connections note what they are asked directly, without an engine.
NOTED: list[list[Asked]] = []


class NotingConnection(sqlite3.Connection):
    """A connection that notes the statements it is asked to execute."""

    def execute(self, text: str, values: Any = ()) -> sqlite3.Cursor:
        """Execute a statement."""
        if names_table(text):
            for asked in NOTED:
                asked.append(Asked(text, values))
        return super().execute(text, values)


@pytest.fixture(autouse=True)
def noting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open connections to SQLite that note statements."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=NotingConnection))


def is_planned_by_index(connection: Connection) -> bool:
    """Return whether a transaction has the planner settings; SQLite needs none."""
    if connection.dialect.name == "sqlite":
        return False
    return bool(connection.exec_driver_sql("SHOW enable_seqscan").scalar_one() == "off")


# --- what is asked ---------------------------------------------------------------------------


async def summarised(stores: Stores) -> None:
    """Put a summary of two rows, as a worker does."""
    ids = ("m0", "m1")
    summary = Summary(
        id="s",
        owner_key="o",
        text="words",
        message_ids=ids,
        first_timestamp=RECEIPT,
        tokens=1,
        created=RECEIPT,
        summarizer="test",
        fingerprint=rows_fingerprint(await stores.history.rows("o", ids)),
    )
    assert await stores.summaries.claim("o", "token", 10)
    expected = Expected(summaries=frozenset(), last_id="m1", rows=2)
    assert await stores.summaries.put(summary, expected)
    await stores.summaries.release("o", "token")


async def fallen(stores: Stores, names: Sequence[str] = NAMES) -> None:
    """Have a few rows fall out, with copies."""
    note = Archiving(reasons=dict.fromkeys(names, "r"), run_id="r", build_id="b")
    await stores.history.flag_fallen("o", names, archiving=note)


async def expired(stores: Stores) -> None:
    """Have a portion of rows and of copies expire, as a worker does; the last of an owner too."""
    await stores.history.append("old", [row(-9)])
    for _ in range(2):
        assert await stores.history.expire(RECEIPT + timedelta(days=1), LIMIT)
    await stores.history.expire_archive(RECEIPT + timedelta(days=1), 3)


async def search(stores: Stores, conversation: str | None, owner: str = "o") -> None:
    """Look for a term that few rows have, and for a time, before a row, as a build does."""
    time = (RECEIPT, RECEIPT + timedelta(minutes=1))
    request = SearchRequest(["rare"], NAMES[0], LIMIT, spans=[time])
    await stores.history.search(owner, conversation, request)


#: The calls of the stores for one request, by builds, workers and recorders.
PATH: Mapping[str, Callable[[Stores], Awaitable[object]]] = {
    "recent": lambda stores: stores.history.recent("o", max_rows=LIMIT, max_tokens=20 * LIMIT),
    "bounded by tokens": lambda stores: stores.history.recent("o", max_tokens=2 * LIMIT),
    "search": lambda stores: search(stores, None),
    "search a conversation": lambda stores: search(stores, "x"),
    "search tool results": lambda stores: search(stores, None, "tools"),
    "search tool results of a conversation": lambda stores: search(stores, "x", "tools"),
    "around": lambda stores: stores.history.around("o", None, "m700", before=LIMIT, after=LIMIT),
    "around in a conversation": lambda stores: stores.history.around(
        "o", "x", "m700", before=LIMIT, after=LIMIT
    ),
    "conversation": lambda stores: stores.history.recent("o", "x", max_rows=LIMIT),
    "profile": lambda stores: stores.profiles.get("o"),
    "summaries": lambda stores: stores.summaries.read("o", "x"),
    "rows": lambda stores: stores.history.rows("o", NAMES),
    "append": lambda stores: stores.history.append("o", [row(MANY)], conversation_id="x"),
    "fell out": fallen,
    "archived": lambda stores: stores.history.archived("o", LIMIT),
    "put profile": lambda stores: stores.profiles.put("o", {"a": 1}),
    "late row": lambda stores: stores.history.append("o", [row(MANY - 9, id="late")]),
    "prune": lambda stores: stores.history.prune("o", NAMES[-9:]),
    "restore": lambda stores: stores.history.restore("o", NAMES[-9:]),
    "summary": summarised,
    "forget summary": lambda stores: stores.summaries.forget("o", ["m0"]),
    "expired": expired,
}


# --- the databases ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Filled:
    """A database with a long history among shorter ones."""

    url: str
    #: A line for each step of a statement that reads, sorts or hashes.
    steps: Callable[[Connection, Asked], list[str]]
    #: The form of such a line.
    by_index: re.Pattern[str]
    #: The form of a line that holds all rows back before the first is given.
    sorting: re.Pattern[str]


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file with the histories, to be copied."""
    file = tmp_path_factory.mktemp("filled") / "history.db"
    asyncio.run(fill(f"sqlite:///{file}"))
    with closing(sqlite3.connect(file)) as database:
        database.execute("ANALYZE")
    return file


# a process that takes tests over from others may leave this module and come back to it
@pytest.fixture(scope="session")
def postgres_templates(postgres: PostgresServer) -> Mapping[str, str]:
    """Give databases with the histories, to be copied: of one nothing is known but its size."""
    names = {"postgres": "analysed", "postgres without statistics": "filled"}
    postgres.run("CREATE DATABASE filled")
    asyncio.run(upgrade(postgres.url("filled")))
    asyncio.run(fill(postgres.url("filled")))
    postgres.run("CREATE DATABASE analysed TEMPLATE filled")
    postgres.run("ANALYZE", "analysed")
    return names


@pytest.fixture(params=["sqlite", "postgres", "postgres without statistics"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Filled:
    """Give a database of each kind with the histories."""
    if request.param == "sqlite":
        file = shutil.copy(request.getfixturevalue("sqlite_file"), tmp_path / "history.db")
        return Filled(f"sqlite:///{file}", sqlite_steps, SQLITE_RANGE, SQLITE_SORT)
    template = request.getfixturevalue("postgres_templates")[request.param]
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"plans_{secrets.token_hex(6)}"
    server.run(f"CREATE DATABASE {name} TEMPLATE {template}")
    return Filled(server.url(name), postgres_steps, POSTGRES_RANGE, POSTGRES_SORT)


async def fill(url: str) -> None:
    """Store the histories."""
    async with open_sql_store(url, Words, Clock()) as stores:
        rows = [row(n, content=f"{_term(n)} word{n}") for n in range(MANY)]
        await stores.history.append("o", rows, conversation_id="x")
        tools = [row(n, content=f"{_term(n)} word{n}", role="TOOL") for n in range(MANY)]
        await stores.history.append("tools", tools, conversation_id="x")
        for other in range(OTHERS):
            rows = [row(n, content="a word") for n in range(FEW)]
            await stores.history.append(f"other {other}", rows, conversation_id="x")


def _term(number: int) -> str:
    if number % 100 == 0:
        return "rare"
    return "usual" if number % USUAL == 0 else "a"


#: The range of an index that begins with the owner, and a step that has all rows before it gives
#: the first.
SQLITE_RANGE = re.compile(r"SEARCH \w+ USING .*INDEX .*\(owner_key=\?.*\)(?: LEFT-JOIN)?")
SQLITE_SORT = re.compile("USE TEMP")
POSTGRES_RANGE = re.compile(r"Index (?:Only )?Scan .*\[.*owner_key = .*\].*")
POSTGRES_SORT = re.compile("Sort|Hash|Materialize")


def sqlite_steps(connection: Connection, asked: Asked) -> list[str]:
    """Return the lines of SQLite's plan."""
    found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked.text}", asked.values)
    return [step for *_, step in found if re.match(f"SCAN (?:{TABLES})|SEARCH|USE TEMP", step)]


def postgres_steps(connection: Connection, asked: Asked) -> list[str]:
    """Return the lines of Postgres' plan, once it has run, with the rows that each has read."""
    undone = connection.begin_nested()
    found = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked.text}", asked.values)
    reported = found.scalar_one()
    undone.rollback()
    (plan,) = json.loads(reported) if isinstance(reported, str) else reported
    return [line(node) for node in nodes(plan["Plan"]) if is_reading(node)]


def nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a node of a plan and all below it."""
    yield node
    for below in node.get("Plans", ()):
        yield from nodes(below)


def is_reading(node: Mapping[str, Any]) -> bool:
    """Return whether a node reads a table, or holds rows back."""
    kind = node["Node Type"]
    own = ("Subquery Scan", "CTE Scan", "Values Scan", "Function Scan")
    return (kind.endswith("Scan") and kind not in own) or kind in {"Sort", "Hash", "Materialize"}


def line(node: Mapping[str, Any]) -> str:
    """Write down a node: what it does, by which condition, and how many rows it has read."""
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    read += node.get("Rows Removed by Index Recheck", 0)
    place = f"{node.get('Relation Name', '')} {node.get('Index Name', '')}"
    rows = round(read * node["Actual Loops"])
    return f"{node['Node Type']} {place} [{node.get('Index Cond', '')}] read {rows}"


async def explained(filled: Filled, asked: Sequence[Asked]) -> list[tuple[Asked, list[str]]]:
    """Return the steps of each statement, planned as it was; what they change is taken back."""
    database = open_database(filled.url)

    def explain(connection: Connection) -> list[list[str]]:
        by_index = is_planned_by_index(connection)
        return [filled.steps(connection, each) for each in asked if each.by_index == by_index]

    try:
        plans = {
            by_index: iter(await database.write(lambda c: c.run_sync(explain), by_index=by_index))
            for by_index in {each.by_index for each in asked}
        }
        return [(each, next(plans[each.by_index])) for each in asked]
    finally:
        await database.aclose()


# --- what must hold --------------------------------------------------------------------------

#: Expired rows of any owner are found by time; copies then one by one.
AGED = re.compile(
    "archive(?:_by_time|_pkey| USING .*INDEX archive_by_time| USING INTEGER PRIMARY)"
    r"|Index Scan messages messages_by_time \[\(sort_time < "
    r"|SEARCH messages USING INDEX messages_by_time \(sort_time<\?\)"
)
#: Tables that are queried for one row by its key, by the plan: reading their only page.
ONE_PAGE = re.compile("Seq Scan (?:profiles|claims) ")
#: Rows are found by their terms, which are an owner's own, and then one by one.
BY_TERMS = re.compile(
    # all rows of some terms, the newest first; asked of each row by its number, it would be ":=M1"
    r"SCAN full_text VIRTUAL TABLE INDEX \d+:M1$"
    r"|SEARCH searched USING INTEGER PRIMARY KEY \(rowid=\?\)"
    r"|Bitmap Index Scan +searched_by_term \[\(+terms |Bitmap Heap Scan searched "
)
#: A scope's few summaries are put in the order of the rows that they cover, rows that were found in
#: that of their arrival.
FEW_SORTED = re.compile("FROM hits|FROM summaries LEFT OUTER JOIN messages|DELETE FROM archive")


async def test_every_statement_of_a_request_is_bounded(filled: Filled) -> None:
    """Each step is the range of an index that begins with the owner; nothing sorts a history."""
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        for name, ask in PATH.items():
            with recorded() as asked:
                await ask(stores)
            assert len(asked) > 4 or "search" not in name
            assert asked, name
            for statement, steps in await explained(filled, asked):
                for step in steps:
                    if filled.sorting.match(step):
                        assert FEW_SORTED.search(" ".join(statement.text.split())), (name, step)
                    elif not any(p.search(step) for p in (AGED, BY_TERMS, ONE_PAGE)):
                        assert filled.by_index.fullmatch(step), (name, step, statement.text)
                    read = re.search(r"read (\d+)$", step)
                    most = BESIDE_MOST if "beside" in statement.text else MOST
                    assert read is None or int(read[1]) <= most, (name, step, statement.text)


#: The owner who has waited longest is found by time.
QUEUED: Final = re.compile(r"vector_queue_by_due")


async def embedded(stores: Stores) -> None:
    """Embed a few of an owner's rows, and compare them."""
    await stores.history.append("o", [row(MANY + LIMIT + 1)])
    waiting = await stores.vectors.take("m", LIMIT)
    assert waiting
    names = [str(each["id"]) for each in waiting.rows]
    await stores.vectors.put(waiting, "m", dict.fromkeys(names, b"v"))
    assert len(await stores.vectors.read("o", "m", names)) == LIMIT
    for after in (0, MANY):
        await stores.vectors.newest("o", "m", LIMIT, after)
    await stores.history.prune("o", names[:2])
    await stores.history.restore("o", names[:2])


async def test_vectors_are_found_by_index(filled: Filled) -> None:
    """Of one owner, and no more than are taken; the owner is the first of the queue."""
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        await stores.vectors.queue_missing("m")
        while waiting := await stores.vectors.take("m", MANY):
            await stores.vectors.put(waiting, "m", {})
        stores.vectors.follow()
        rows = [row(MANY + n, content="a word") for n in range(LIMIT + 1)]
        await stores.history.append("o", rows)
        with recorded() as asked:
            await embedded(stores)

    for statement, steps in await explained(filled, asked):
        for step in steps:
            if not QUEUED.search(step) and "vector_queue" not in step:
                assert not filled.sorting.match(step), (step, statement.text)
                assert filled.by_index.fullmatch(step), (step, statement.text)
            read = re.search(r"read (\d+)$", step)
            assert read is None or int(read[1]) <= MOST, (step, statement.text)


def _lengths(values: tuple[Any, ...] | dict[str, Any]) -> list[int]:
    """Return the lengths of the lists among the parameters of a statement."""
    given = values.values() if isinstance(values, dict) else values
    read = [json.loads(v) if isinstance(v, str) and v.startswith("[") else v for v in given]
    return [len(value) for value in read if isinstance(value, list)]


@pytest.mark.parametrize("conversation", [None, "x"])
async def test_a_search_reads_what_it_has_found_and_what_is_around(
    filled: Filled, conversation: str | None
) -> None:
    """The rows that builds request are found one by one: no statement reads a history."""
    terms = ["usual", *(f"word{MANY - 10 + n}" for n in range(2 * QUESTION_TERMS - 1))]
    before = f"m{MANY - 1}"
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        with recorded() as asked:
            found = await stores.history.search(
                "o", conversation, SearchRequest(terms, before, SEARCHED_ROWS)
            )

    hits = SEARCHED_ROWS // ROWS_PER_HIT
    assert len(found) == SEARCHED_ROWS
    others = [_lengths(each.values) for each in asked if "term_counts" not in each.text]
    # twice if the machine was busy, and the event loop's thread gave the read up
    assert sum(hits in lengths for lengths in others) in {1, 2}
    for statement, steps in await explained(filled, asked):
        for step in steps:
            if filled.sorting.match(step):
                assert FEW_SORTED.search(" ".join(statement.text.split())), step
            elif not BY_TERMS.search(step):
                assert filled.by_index.fullmatch(step), (step, statement.text)
            read = re.search(r"read (\d+)$", step)
            # reported per repetition of a step, rounded: a quarter more
            most = (
                SEARCHED_ROWS
                if "messages.body" in statement.text
                else MANY // USUAL + MAX_SINGLE_TERMS
            )
            assert read is None or int(read[1]) <= most * 5 / 4, (step, statement.text)


async def test_a_build_reads_what_it_can_show(filled: Filled) -> None:
    """A build over a long history asks for a page of it, whatever the strategy."""
    settings = Settings.model_validate(
        {
            "store": {"url": filled.url},
            "memory": {"limit": LIMIT // 2},
            "summaries": {"enabled": False},
        }
    )
    content = {"current_input": "hello"}
    request = BuildRequest.model_validate({"id": "r", "owner_key": "o", "content": content})
    async with open_builder(settings) as builder:
        with recorded() as asked:
            built = await builder.build_or_raise(request)

    assert built.content.kept == LIMIT // 2
    assert len(asked) == 3
    read = 0
    for _, steps in await explained(filled, asked):
        assert all(filled.by_index.fullmatch(s) or ONE_PAGE.match(s) for s in steps), steps
        read += sum(int(found) for step in steps for found in re.findall(r"read (\d+)$", step))
    assert read <= MOST


async def test_rows_with_ids_are_found_one_by_one(filled: Filled) -> None:
    """By the key of the table: whatever the ids, no other row is read."""
    names = [f"m{number}" for number in range(LIMIT)]
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        with recorded() as asked:
            await stores.history.rows("o", names)
            await stores.history.flag_fallen("o", names)
            await stores.history.prune("o", names)
            await stores.history.expire(RECEIPT + timedelta(days=1), LIMIT)

    steps = [
        step
        for each, reported in await explained(filled, asked)
        for step in reported
        if "messages.id IN" in each.text
    ]
    assert len(steps) == 4
    assert all(re.search("messages_pkey|autoindex_messages_1", step) for step in steps), steps


async def test_totals_are_read_from_the_two_ends_of_a_scope(filled: Filled) -> None:
    """The newest row, and the oldest one for what has expired before it: an index gives each."""
    asking = [
        lambda stores: stores.history.recent("o", max_rows=1),
        lambda stores: stores.history.recent("o", "x", max_rows=1),
        summarised,
    ]
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        with recorded() as asked:
            for ask in asking:
                await ask(stores)

    totals = [each for each in asked if re.search(r"owner_rows - |conversation_rows - ", each.text)]
    reported = [steps for _, steps in await explained(filled, totals)]
    for scope, steps in zip(("owner", "conversation"), reported[:2], strict=True):
        assert len(steps) == 3, steps
        assert all(re.search(rf"messages_by_{scope}\b", step) for step in steps), steps
    (place,) = reported[2:]
    assert re.search("messages_pkey|autoindex_messages_1", " ".join(place))
    assert len(place) == 2, place
    assert all(filled.by_index.fullmatch(step) for steps in reported for step in steps), reported
    assert not re.search("read (?!1\\b)", str(reported)), reported


async def test_what_is_left_of_an_owner_is_requested_from_the_index_alone(filled: Filled) -> None:
    """One entry of it, also where an owner has most rows of the database."""
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        with recorded() as asked:
            await expired(stores)

    left = [
        each for each in asked if "SELECT messages.sort_time FROM" in " ".join(each.text.split())
    ]
    assert len(left) == 2
    for _, steps in await explained(filled, left):
        assert len(steps) == 1, steps
        assert re.search("Index Only Scan|COVERING INDEX", steps[0])
        assert filled.by_index.fullmatch(steps[0])


async def test_an_erasure_reads_one_owner(filled: Filled) -> None:
    """Of each table a range of an index, with the owner's rows and no others."""
    async with open_sql_store(filled.url, Words, Clock()) as stores:
        await fallen(stores)
        with recorded() as asked:
            assert await stores.history.erase("other 0") == FEW
            await stores.profiles.erase("other 0")

    another = [
        Asked(each.text, ("other 1",), each.by_index) for each in asked if "DELETE" in each.text
    ]
    assert len(another) == 11
    for statement, steps in await explained(filled, another):
        assert len(steps) == 1, statement.text
        found = filled.by_index.fullmatch(steps[0]) or ONE_PAGE.match(steps[0])
        assert found, (statement.text, steps)
        read = re.search(r"read (\d+)$", steps[0])
        assert read is None or int(read[1]) <= FEW, steps


# --- owners ----------------------------------------------------------------------------------

#: A condition that binds a table to an owner, who is given or another table's, or a row with one.
OWNED = re.compile(
    r"(\w+)\.owner_key = (?:\?|\$\d+|:in_owner|\w+\.owner_key)|INTO (\w+) \(owner_key"
)


#: Patterns of the statements that name no owner, each with its reason.
OF_ALL_OWNERS = {
    "DELETE FROM archive .*ORDER BY archive.archived_at LIMIT .*": "copies expire by their age",
    "SELECT messages.owner_key .*ORDER BY messages.sort_time LIMIT .*": "asks whose rows expire",
    "SELECT archive.number .*ORDER BY archive.archived_at LIMIT .*": "asks whether copies expire",
}


def test_every_statement_names_its_owner(sql: Sql) -> None:
    """Each table that a statement reads or changes is bound to an owner, each time it does."""
    texts = asyncio.run(everything(sql.url))

    unbound = [text for text in texts if not is_owned(text)]
    assert len(texts) > 35
    for pattern, reason in OF_ALL_OWNERS.items():
        assert sum(bool(re.fullmatch(pattern, text)) for text in unbound) == 1, reason
    assert len(unbound) == len(OF_ALL_OWNERS)


async def everything(url: str) -> set[str]:
    """Ask all that there is to ask of the stores; returns the statements."""
    async with open_sql_store(url, Words, Clock()) as stores:
        with recorded() as asked:
            rows = [row(n) for n in range(3)]
            await stores.history.append("o", rows, conversation_id="x")
            await fallen(stores, ["m0"])
            for ask in PATH.values():
                await ask(stores)
            await stores.history.stats("o")
            await stores.history.get_history("o", 5)
            await stores.summaries.read("o")
            await stores.history.erase("o")
            await stores.profiles.erase("o")
    return {" ".join(each.text.split()) for each in asked}


def is_owned(text: str) -> bool:
    """Return whether each naming of a table comes with an owner."""
    used = re.findall(r"(?:FROM|JOIN|UPDATE|INTO) (\w+)", text)
    tables = [name for name in used if name in metadata.tables]
    bound = [one or other for one, other in OWNED.findall(text)]
    return bool(tables) and all(bound.count(name) >= tables.count(name) for name in tables)
