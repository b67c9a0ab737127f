"""Flags on rows in SQL: pruned, fallen out, archived. Ids and owners are keys of the tables."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import BigInteger, bindparam, delete, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.rows import fix_surrogates
from service.adapters.sql.queries import (
    CHANGED,
    OF_OWNER,
    OWNED,
    WITH_IDS,
    ChangedRow,
    batches,
    read_bodies,
    recount,
    row_limit,
)
from service.adapters.sql.schema import (
    archive,
    fallen,
    from_key,
    insert,
    key,
    messages,
    summaries,
)
from service.adapters.sql.search_index import IndexedRow, index_rows, unindex_rows
from service.adapters.store_records import from_microseconds, microseconds, terms_in
from service.ports.stores import ArchivedRow, Archiving, HistoryStats

#: Sets ``pruned`` to ``now_pruned`` on those of the ``ids`` that differ, and returns them.
_SET_PRUNED: Final = (
    update(messages)
    .where(WITH_IDS, messages.c.pruned != bindparam("now_pruned"))
    .values(pruned=bindparam("now_pruned"))
    .returning(*CHANGED)
)
#: Flags those of the ``ids`` as fallen that are stored, not pruned and not flagged yet, and returns
#: them. With ``pruned = 0``, SQLite would read all of an owner by an index that has ``pruned``.
_FLAG_FALLEN: Final = (
    insert(fallen)
    .from_select(
        ["owner_key", "id"],
        select(messages.c.owner_key, messages.c.id).where(
            WITH_IDS, messages.c.pruned != literal(1)
        ),
    )
    .on_conflict_do_nothing()
    .returning(fallen.c.id)
)
#: The newest ``limit`` copies in an archive, newest first.
_ARCHIVED: Final = (
    select(archive)
    .where(archive.c.owner_key == bindparam("in_owner"))
    .order_by(archive.c.number.desc())
    .limit(bindparam("limit", type_=BigInteger))
)
#: Deletes all copies from before ``until``, of any owner. Copies that another transaction has
#: locked are left for the next time: waiting for them with an owner locked could be a deadlock.
_DELETE_OLD_COPIES: Final = delete(archive).where(
    archive.c.number.in_(
        select(archive.c.number)
        .where(archive.c.archived_at < bindparam("until"))
        .with_for_update(skip_locked=True)
    )
)
#: An owner's pruned rows, rows that once fell out, archived copies, and summaries.
_COUNTS: Final = select(
    select(func.count()).where(OWNED, messages.c.pruned == literal(1)).scalar_subquery(),
    *(
        select(func.count()).where(table.c.owner_key == bindparam("in_owner")).scalar_subquery()
        for table in (fallen, archive, summaries)
    ),
)


async def set_pruned(
    connection: AsyncConnection, owner: str, ids: Sequence[str], *, pruned: bool
) -> int:
    """Hide rows of a locked owner, or show them again; returns how many changed."""
    changed: list[ChangedRow] = []
    for batch in batches(ids):
        values = {"in_owner": owner, "ids": batch, "now_pruned": int(pruned)}
        changed += [ChangedRow(*row) for row in await connection.execute(_SET_PRUNED, values)]
    if pruned:
        await unindex_rows(connection, owner, [row.sequence for row in changed])
    else:
        bodies = await read_bodies(connection, owner, [row.id for row in changed])
        shown = (IndexedRow(**row._asdict(), terms=terms_in(bodies[row.id])) for row in changed)
        await index_rows(connection, owner, shown)
    return await recount(connection, owner, changed)


async def flag_fallen(connection: AsyncConnection, owner: str, ids: Sequence[str]) -> list[str]:
    """Flag rows of a locked owner as fallen out; returns the newly flagged ones, in their order."""
    new: set[str] = set()
    for batch in batches(ids):
        new.update(await connection.scalars(_FLAG_FALLEN, {"in_owner": owner, "ids": batch}))
    return [row_id for row_id in dict.fromkeys(ids) if row_id in new]


async def archive_rows(
    connection: AsyncConnection,
    owner: str,
    reasons: Mapping[str, str],
    archiving: Archiving,
    now: datetime,
) -> None:
    """Archive rows, given with their reasons, and delete all copies that have expired."""
    bodies = await read_bodies(connection, owner, list(reasons))
    copies = [
        {
            "owner_key": owner,
            "archived_at": microseconds(now),
            "reason": reason,
            "run_id": key(fix_surrogates(archiving.run_id)),
            "build_id": archiving.build_id,
            "body": bodies[row_id],
        }
        for row_id, reason in reasons.items()
    ]
    if copies:
        await connection.execute(insert(archive), copies)
    until = microseconds(now - archiving.retention)
    await connection.execute(_DELETE_OLD_COPIES, {"until": until})


async def read_archive(connection: AsyncConnection, owner: str, limit: int) -> list[ArchivedRow]:
    """Return the newest copies in an owner's archive, newest first."""
    copies = await connection.execute(_ARCHIVED, {"in_owner": owner, "limit": row_limit(limit)})
    return [
        ArchivedRow(
            row=json.loads(copy.body),
            reason=copy.reason,
            run_id=from_key(copy.run_id),
            build_id=copy.build_id,
            at=from_microseconds(copy.archived_at),
        )
        for copy in copies
    ]


async def count_rows(connection: AsyncConnection, owner: str) -> HistoryStats:
    """Count what the store holds of an owner."""
    newest = (await connection.execute(OF_OWNER.newest, {"in_owner": owner})).first()
    counts = (await connection.execute(_COUNTS, {"in_owner": owner})).one()
    pruned, fallen_out, archived, summarized = counts
    return HistoryStats(
        rows=newest.rows if newest else 0,
        tokens=newest.tokens if newest else 0,
        pruned=pruned,
        fallen=fallen_out,
        archived=archived,
        summaries=summarized,
    )
