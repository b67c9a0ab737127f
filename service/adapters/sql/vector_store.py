"""The store of vectors in SQL, and the queue of owners whose rows have none yet."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.rows import fix_surrogates, read_content
from service.adapters.sql.engine import Database
from service.adapters.sql.queries import (
    LIMIT,
    execute_by_ids,
    from_key,
    key,
    lock_owner,
    owned,
    owner_of,
    read_bodies,
)
from service.adapters.sql.schema import insert, messages, owners, searched, vector_queue, vectors
from service.adapters.store_records import has_terms, microseconds
from service.ports.stores import Clock, NumberedVector, WaitingRows

#: Microseconds that a process's claim of rows lasts.
LEASE: Final = 60_000_000

_NOW: Final = sa.bindparam("now", type_=sa.BigInteger)
_MODEL: Final = sa.bindparam("of_model", type_=sa.Text)
_AFTER: Final = sa.bindparam("after", type_=sa.BigInteger)
_QUEUED: Final = vector_queue.c

_ADD: Final = insert(vector_queue).values(
    owner_key=sa.bindparam("in_owner"), model="", sequence=0, due=_NOW
)
#: Queues an owner who has new rows.
_QUEUE: Final = _ADD.on_conflict_do_update(
    index_elements=vector_queue.primary_key, set_={"due": sa.func.coalesce(_QUEUED.due, _NOW)}
)
#: Queues an owner whose rows after the number ``after`` may have no vector; also if a process has
#: taken rows after it, which then doesn't note how far it came.
_QUEUE_AGAIN: Final = _ADD.on_conflict_do_update(
    index_elements=vector_queue.primary_key,
    set_={
        "due": _NOW,
        "sequence": sa.case((_QUEUED.sequence > _AFTER, _AFTER), else_=_QUEUED.sequence),
    },
)
#: Queues the owners who were never queued.
_QUEUE_UNKNOWN: Final = (
    insert(vector_queue)
    .from_select(
        ["owner_key", "model", "sequence", "due"],
        sa.select(owners.c.owner_key, sa.literal(""), sa.literal(0), _NOW).where(
            ~sa.exists().where(_QUEUED.owner_key == owners.c.owner_key)
        ),
    )
    .on_conflict_do_nothing()
)
#: The number of the row that an owner's last append has stored.
_LAST_STORED: Final = (
    sa.select(owners.c.last_sequence)
    .where(owners.c.owner_key == _QUEUED.owner_key)
    .scalar_subquery()
)
#: Queues the owners with vectors of another model, and those with later rows.
_QUEUE_OUTDATED: Final = (
    sa.update(vector_queue)
    .where(_QUEUED.due.is_(None), sa.or_(_QUEUED.model != _MODEL, _QUEUED.sequence < _LAST_STORED))
    .values(due=_NOW)
)
#: The owner who has waited longest.
_NEXT: Final = (
    sa.select(_QUEUED.owner_key).where(_QUEUED.due <= _NOW).order_by(_QUEUED.due).limit(1)
)
#: Takes that owner, or one that no other process is taking.
_TAKE: Final = (
    sa.update(vector_queue)
    .where(_QUEUED.owner_key == _NEXT.with_for_update(skip_locked=True).scalar_subquery())
    .values(
        due=_NOW + LEASE,
        model=_MODEL,
        sequence=sa.case((_QUEUED.model == _MODEL, _QUEUED.sequence), else_=0),
    )
    .returning(_QUEUED.owner_key, _QUEUED.sequence, _QUEUED.due)
)


#: Whether an entry of the index is of a row that prints what is said: tool results and rows with
#: only calls have no vectors. A value, so that each row is looked up.
_IS_SAID: Final = (
    sa.select(messages.c.printed_tokens)
    .where(messages.c.owner_key == searched.c.owner_key, messages.c.id == searched.c.id)
    .scalar_subquery()
) > 0


def _waiting(after: Any) -> sa.Select[int, str]:  # noqa: ANN401 - a parameter, or a column
    """Select an owner's rows after a number that say something and that have no vector."""
    # a value, so that each row is looked up: a planner could join all vectors of the owner
    model = (
        sa.select(vectors.c.model)
        .where(vectors.c.owner_key == searched.c.owner_key, vectors.c.id == searched.c.id)
        .scalar_subquery()
    )
    rows = sa.select(searched.c.sequence, searched.c.id).where(owned(searched))
    return rows.where(searched.c.sequence > after, model.is_distinct_from(_MODEL), _IS_SAID)


#: The first ``limit`` of them.
_WAITING: Final = _waiting(_AFTER).order_by(searched.c.sequence).limit(LIMIT)
#: Notes that an owner's rows up to the number ``last`` have vectors; later rows are due at once.
_ADVANCE: Final = (
    sa.update(vector_queue)
    .where(owned(vector_queue), _QUEUED.due == sa.bindparam("claim", type_=sa.BigInteger))
    .values(due=_NOW, sequence=sa.bindparam("last", type_=sa.BigInteger))
)
#: Takes an owner off the queue unless there are such rows; appends wait for the owner's lock.
_CLOSE: Final = (
    sa.update(vector_queue)
    .where(owned(vector_queue), ~_waiting(_QUEUED.sequence).correlate(vector_queue).exists())
    .values(due=sa.null(), sequence=_LAST_STORED)
)
_NEW: Final = insert(vectors)
_REPLACE: Final = _NEW.on_conflict_do_update(
    index_elements=vectors.primary_key,
    set_={"model": _NEW.excluded.model, "vector": _NEW.excluded.vector},
)
_READ: Final = sa.select(vectors.c.id, vectors.c.vector).where(
    owned(vectors), vectors.c.id.in_(sa.bindparam("ids", expanding=True)), vectors.c.model == _MODEL
)


#: The ``limit`` rows that arrived last, of those that say something.
_LAST_ROWS: Final = (
    sa.select(searched.c.owner_key, searched.c.sequence, searched.c.id)
    .where(owned(searched), searched.c.sequence > _AFTER, _IS_SAID)
    .order_by(searched.c.sequence.desc())
    .limit(LIMIT)
    .subquery("last_rows")
)


def _of_last_row(table: sa.Table, column: str) -> sa.ScalarSelect[Any]:
    """Look up a column of one of them; one by one, as above."""
    same = (table.c.owner_key == _LAST_ROWS.c.owner_key, table.c.id == _LAST_ROWS.c.id)
    return sa.select(table.c[column]).where(*same).scalar_subquery()


#: Their numbers, ids, conversations and vectors, null for rows without one.
_NEWEST: Final = sa.select(
    _LAST_ROWS.c.sequence,
    _LAST_ROWS.c.id,
    _of_last_row(messages, "conversation_id").label("conversation"),
    sa.case((_of_last_row(vectors, "model") == _MODEL, _of_last_row(vectors, "vector"))).label(
        "vector"
    ),
)


class SqlVectors:
    """The `VectorStore` in SQL; by ``clock``, others may take rows that a process never put."""

    is_local = False

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        #: Whether owners of new rows are to be queued.
        self.follows = False

    def follow(self) -> None:
        """From now on, queue the owners of rows that this process appends or restores."""
        self.follows = True

    async def queue(self, connection: AsyncConnection, owner: str) -> None:
        """Queue a locked owner for new rows."""
        await connection.execute(_QUEUE, {"in_owner": owner, "now": self._now()})

    async def queue_again(
        self, connection: AsyncConnection, owner: str, sequences: Sequence[int]
    ) -> None:
        """Queue a locked owner for restored rows with these numbers, if rows are followed."""
        if self.follows and sequences:
            values = {"in_owner": owner, "now": self._now(), "after": min(sequences) - 1}
            await connection.execute(_QUEUE_AGAIN, values)

    async def queue_missing(self, model: str) -> None:
        """Queue the owners of rows that were stored while no vectors were, or by another model."""
        values = {"of_model": model, "now": self._now()}

        async def queue_all(connection: AsyncConnection) -> None:
            await connection.execute(_QUEUE_UNKNOWN, values)
            await connection.execute(_QUEUE_OUTDATED, values)

        await self._database.write(queue_all)

    async def take(
        self,
        model: str,
        limit: int,
        owner_key: str | None = None,  # noqa: ARG002 - not local
    ) -> WaitingRows | None:
        """Return at most ``limit`` rows of the owner who has waited longest; None if none wait."""

        async def take_next(connection: AsyncConnection) -> WaitingRows | None:
            values = {"now": self._now(), "of_model": model}
            taken = (await connection.execute(_TAKE, values)).first()
            if taken is None:
                return None
            owner, after, claim = taken
            values |= {"in_owner": owner, "after": after, "limit": limit}
            found = (await connection.execute(_WAITING, values)).all()
            bodies = await read_bodies(connection, owner, [row.id for row in found])
            read = (json.loads(bodies[row.id]) for row in found)
            # a row that calls tools may say something without a word
            rows = [row for row in read if has_terms(read_content(row["content"]))]
            last = found[-1].sequence if found else after
            return WaitingRows(from_key(owner), rows, claim or 0, last)

        # without waiting for the lock of a writer if there is nothing to do
        while (
            await self._database.read(lambda c: c.scalar(_NEXT, {"now": self._now()})) is not None
        ):
            waiting = await self._database.write(take_next, by_index=True)
            if waiting is None or waiting.rows:
                return waiting
            await self.put(waiting, model, {})
        return None

    async def put(self, waiting: WaitingRows, model: str, vectors: Mapping[str, bytes]) -> None:
        """Store the vectors of rows that were taken, by id; rows deleted meanwhile get none."""
        owner = owner_of(waiting.owner_key)
        by_key = {key(row_id): packed for row_id, packed in vectors.items()}
        texts = {key(str(row["id"])): read_content(row["content"]) for row in waiting.rows}
        done = {"in_owner": owner, "claim": waiting.claim, "last": waiting.last}

        async def store(connection: AsyncConnection) -> None:
            if not await lock_owner(connection, owner):
                return
            bodies = await read_bodies(connection, owner, list(by_key))
            rows = [
                {"owner_key": owner, "id": row_id, "model": model, "vector": by_key[row_id]}
                for row_id, body in bodies.items()
                # a deleted row's id may have another text by now
                if read_content(json.loads(body)["content"]) == texts[row_id]
            ]
            if rows:
                await connection.execute(_REPLACE, rows)
            await connection.execute(_ADVANCE, {**done, "now": self._now()})
            await connection.execute(_CLOSE, {"in_owner": owner, "of_model": model})

        await self._database.write(store, by_index=True)

    async def read(self, owner_key: str, model: str, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors of a model that the owner's rows with these ids have, by id."""
        owner, by_key = owner_of(owner_key), {key(fix_surrogates(row_id)): row_id for row_id in ids}

        async def read_all(connection: AsyncConnection) -> Mapping[str, bytes]:
            keys = {"of_model": model}
            rows = await execute_by_ids(connection, _READ, owner, list(by_key), keys)
            return {by_key[row.id]: row.vector for row in rows}

        return await self._database.read(read_all, by_index=True)

    async def newest(
        self, owner_key: str, model: str, limit: int, after: int
    ) -> Sequence[NumberedVector]:
        """Return the vectors of a model that the newest rows have, newest first."""
        owner = owner_of(owner_key)
        values = {"in_owner": owner, "of_model": model, "limit": limit, "after": after}

        async def read(connection: AsyncConnection) -> Sequence[NumberedVector]:
            return [
                NumberedVector(number, from_key(row_id), name and from_key(name), packed)
                for number, row_id, name, packed in await connection.execute(_NEWEST, values)
                if packed is not None
            ]

        return await self._database.read(read, by_index=True)

    def _now(self) -> int:
        return microseconds(self._clock())
