"""The marks on rows in SQL: pruned, fallen out, archived. Ids and owners are keys of the tables."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.rows import fix_surrogates
from service.adapters.sql.queries import (
    ARCHIVED,
    COUNTS,
    FALL,
    FORGET,
    OWNER,
    PRUNE,
    portions,
    read_bodies,
    row_limit,
)
from service.adapters.sql.schema import archive, from_key, insert, key
from service.adapters.sql.search_index import Changed, Found, index_rows, recount, unindex_rows
from service.adapters.store_records import from_microseconds, microseconds, terms_in
from service.ports.stores import ArchivedRow, Archiving, HistoryStats


async def set_pruned(
    connection: AsyncConnection, owner: str, ids: Sequence[str], *, pruned: bool
) -> int:
    """Hide rows of a locked owner, or show them again; returns how many that changed."""
    changed: list[Changed] = []
    for some in portions(ids):
        chosen = {"in_owner": owner, "ids": some, "now_pruned": int(pruned)}
        changed += [Changed(*row) for row in await connection.execute(PRUNE, chosen)]
    if pruned:
        await unindex_rows(connection, owner, [row.sequence for row in changed])
    else:
        bodies = await read_bodies(connection, owner, [row.id for row in changed])
        shown = (Found(**row._asdict(), terms=terms_in(bodies[row.id])) for row in changed)
        await index_rows(connection, owner, shown)
    return await recount(connection, owner, changed)


async def mark_fallen(connection: AsyncConnection, owner: str, ids: Sequence[str]) -> list[str]:
    """Mark rows of a locked owner as fallen out; returns those that were not, in their order."""
    new: set[str] = set()
    for some in portions(ids):
        new.update(await connection.scalars(FALL, {"in_owner": owner, "ids": some}))
    return [name for name in dict.fromkeys(ids) if name in new]


async def copy_fallen(
    connection: AsyncConnection,
    owner: str,
    reasons: Mapping[str, str],
    archiving: Archiving,
    now: datetime,
) -> None:
    """Archive rows, given with their reasons, and delete all copies that have grown too old."""
    bodies = await read_bodies(connection, owner, list(reasons))
    copies = [
        {
            "owner_key": owner,
            "archived_at": microseconds(now),
            "reason": reason,
            "run_id": key(fix_surrogates(archiving.run_id)),
            "build_id": archiving.build_id,
            "body": bodies[name],
        }
        for name, reason in reasons.items()
    ]
    if copies:
        await connection.execute(insert(archive), copies)
    await connection.execute(FORGET, {"until": microseconds(now - archiving.retention)})


async def read_archive(connection: AsyncConnection, owner: str, limit: int) -> list[ArchivedRow]:
    """Return the newest copies, the last that fell out first."""
    found = await connection.execute(ARCHIVED, {"in_owner": owner, "limit": row_limit(limit)})
    return [
        ArchivedRow(
            row=json.loads(copy.body),
            reason=copy.reason,
            run_id=from_key(copy.run_id),
            build_id=copy.build_id,
            at=from_microseconds(copy.archived_at),
        )
        for copy in found
    ]


async def count_marks(connection: AsyncConnection, owner: str) -> HistoryStats:
    """Count what there is of an owner."""
    last = (await connection.execute(OWNER.newest, {"in_owner": owner})).first()
    rows, tokens = (last.rows, last.tokens) if last else (0, 0)
    pruned, fallen, archived, summaries = (
        await connection.execute(COUNTS, {"in_owner": owner})
    ).one()
    return HistoryStats(
        rows=rows,
        tokens=tokens,
        pruned=pruned,
        fallen=fallen,
        archived=archived,
        summaries=summaries,
    )
