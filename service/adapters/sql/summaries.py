"""Summaries in an SQL database, beside the history that they cover."""

import json
from collections import OrderedDict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Summary
from formatters.rows import fix_surrogates
from formatters.times import parse_timestamp
from service.adapters.sql.engine import Database
from service.adapters.sql.queries import portions, read_bodies, scope
from service.adapters.sql.schema import claims, insert, key, messages, summaries
from service.adapters.sql.search_index import lock_owner
from service.adapters.store_records import Clock, checked_owner, microseconds
from service.ports.summaries import Expected, fingerprint

#: Summaries that are kept read; one that covers thousands of rows takes a millisecond to read.
REMEMBERED: Final = 1_024
#: Rows that these cover, whose ids they hold, some 100 bytes each.
REMEMBERED_ROWS: Final = 100_000

_PLAIN: Final = ("id", "owner_key", "conversation_id", "text", "generation", "tokens")
_TIMES: Final = ("first_timestamp", "last_timestamp", "created")


class SqlSummaries:
    """The `SummaryStore` over SQL; the owner's erasure in `SqlHistory` takes them along."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], Summary] = OrderedDict()
        self._rows = 0

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of what they cover."""
        owner, conversation = _scope(owner_key, conversation_id)
        names = (
            select(summaries.c.id)
            .outerjoin(
                messages,
                (messages.c.owner_key == summaries.c.owner_key)
                & (messages.c.id == summaries.c.first_id),
            )
            .where(summaries.c.owner_key == owner, _within(conversation))
            .order_by(messages.c.sort_time, messages.c.sequence, summaries.c.number)
        )

        async def look(connection: AsyncConnection) -> list[Summary]:
            found = list(await connection.scalars(names))
            known = {
                name: self._known[owner, name] for name in found if (owner, name) in self._known
            }
            query = select(summaries.c.id, summaries.c.body).where(
                summaries.c.owner_key == owner, summaries.c.id.in_(set(found) - set(known))
            )
            if len(known) < len(found):
                rows = await connection.execute(query)
                known |= {row.id: from_json(row.body) for row in rows}
            return [known[name] for name in found]

        kept = await self._database.read(look)
        self._remember(owner, kept)
        return kept

    def _remember(self, owner: str, kept: Sequence[Summary]) -> None:
        for summary in kept:
            if (owner, summary.id) not in self._known:
                self._known[owner, summary.id] = summary
                self._rows += len(summary.message_ids)
        while len(self._known) > REMEMBERED or self._rows > REMEMBERED_ROWS:
            _, forgotten = self._known.popitem(last=False)
            self._rows -= len(forgotten.message_ids)

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, if all is as expected; in one transaction."""
        owner, conversation = _scope(summary.owner_key, summary.conversation_id)

        async def add(connection: AsyncConnection) -> bool:
            if not await lock_owner(connection, owner):
                return False
            if not await _unchanged(connection, summary, expected):
                return False
            gone = delete(summaries).where(
                summaries.c.owner_key == owner, summaries.c.id.in_(list(replaces))
            )
            await connection.execute(gone)
            values = {
                "owner_key": owner,
                "id": summary.id,
                "conversation_id": conversation,
                "first_id": key(summary.message_ids[0]),
                "body": to_json(summary),
            }
            await connection.execute(insert(summaries).values(values))
            return True

        return await self._database.write(add)

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        owner = key(checked_owner(owner_key))

        async def drop(connection: AsyncConnection) -> int:
            if not await lock_owner(connection, owner):
                return 0
            return await forget_rows(connection, owner, message_ids)

        return await self._database.write(drop)

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take the right to summarise an owner's history, unless another has it."""
        now = microseconds(self._clock())
        taken = insert(claims).values(
            owner_key=key(checked_owner(owner_key)),
            token=token,
            until=now + round(seconds * 1_000_000),
        )
        taken = taken.on_conflict_do_update(
            index_elements=[claims.c.owner_key],
            set_={"token": taken.excluded.token, "until": taken.excluded.until},
            where=(claims.c.until <= now) | (claims.c.token == token),
        )

        async def take(connection: AsyncConnection) -> bool:
            done = await connection.execute(taken.returning(claims.c.token))
            return done.first() is not None

        return await self._database.write(take)

    async def release(self, owner_key: str, token: str) -> None:
        """Give back the right to summarise, if it is still this one's."""
        mine = (claims.c.owner_key == key(checked_owner(owner_key)), claims.c.token == token)
        await self._database.write(
            lambda connection: connection.execute(delete(claims).where(*mine))
        )


async def forget_rows(connection: AsyncConnection, owner: str, message_ids: Collection[str]) -> int:
    """Delete the summaries of a locked owner that cover any of these rows."""
    query = select(summaries.c.id, summaries.c.body).where(summaries.c.owner_key == owner)
    stale = [
        row.id
        for row in await connection.execute(query)
        if not from_json(row.body).covers.isdisjoint(message_ids)
    ]
    await connection.execute(
        delete(summaries).where(summaries.c.owner_key == owner, summaries.c.id.in_(stale))
    )
    return len(stale)


async def _unchanged(connection: AsyncConnection, summary: Summary, expected: Expected) -> bool:
    """Tell whether the summaries, the place of the last row and the covered rows are the same.

    A covered row that has been pruned meanwhile is no longer there.
    """
    owner, conversation = _scope(summary.owner_key, summary.conversation_id)
    names = select(summaries.c.id).where(summaries.c.owner_key == owner, _within(conversation))
    if set(await connection.scalars(names)) != expected.summaries:
        return False
    of = scope(owner, conversation)
    place = {**of.keys, "name": key(expected.last_id)}
    if await connection.scalar(of.statements.place, place) != expected.rows:
        return False
    ids = [key(name) for name in summary.message_ids]
    for some in portions(ids):
        hidden = select(messages.c.id).where(
            messages.c.owner_key == owner, messages.c.id.in_(some), messages.c.pruned == 1
        )
        if await connection.scalar(hidden.limit(1)) is not None:
            return False
    bodies = await read_bodies(connection, owner, ids)
    if len(bodies) < len(ids):
        return False
    return fingerprint(json.loads(bodies[name]) for name in ids) == summary.fingerprint


def to_json(summary: Summary) -> str:
    """Return a summary as it is stored."""
    fields: dict[str, object] = {name: getattr(summary, name) for name in _PLAIN}
    times: dict[str, datetime | None] = {name: getattr(summary, name) for name in _TIMES}
    fields |= {name: time and time.isoformat() for name, time in times.items()}
    fields |= {"summarizer": summary.summarizer, "fingerprint": summary.fingerprint}
    text = json.dumps({**fields, "message_ids": summary.message_ids}, ensure_ascii=False)
    return fix_surrogates(text)


def from_json(body: str) -> Summary:
    """Read a summary as it was stored."""
    fields = json.loads(body)
    fields |= {name: parse_timestamp(fields[name]) for name in _TIMES}
    return Summary(**{**fields, "message_ids": tuple(fields["message_ids"])})


def _scope(owner_key: str, conversation_id: str | None) -> tuple[str, str | None]:
    owner = key(checked_owner(owner_key))
    return owner, None if conversation_id is None else key(fix_surrogates(conversation_id))


def _within(conversation: str | None) -> ColumnElement[bool]:
    column = summaries.c.conversation_id
    return column.is_(None) if conversation is None else column == conversation
