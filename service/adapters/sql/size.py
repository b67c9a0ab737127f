"""How large a database is, and how many connections it has."""

import time
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.opening import is_missing, opened
from service.config.endpoints import StoreSettings
from service.ports.status import StoreState

#: Rows, owners, summaries, bytes, whether these are counted; connections, and the time there.
_QUESTIONS: Final = {
    "sqlite": """
SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM owners),
  (SELECT count(*) FROM summaries), page_count * page_size, 1, NULL, NULL
FROM pragma_page_count, pragma_page_size""",
    # to count all rows of a large table would take minutes: so they are as the server reckons them,
    # and what it hasn't looked at yet is small enough to be counted
    "postgresql": """
WITH tables AS (
  SELECT relname, nullif(reltuples, -1)::bigint AS reckoned, pg_total_relation_size(oid) AS size
  FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
)
SELECT
  coalesce((SELECT reckoned FROM tables WHERE relname = 'messages'),
    (SELECT count(*) FROM messages)),
  coalesce((SELECT reckoned FROM tables WHERE relname = 'owners'), (SELECT count(*) FROM owners)),
  coalesce((SELECT reckoned FROM tables WHERE relname = 'summaries'),
    (SELECT count(*) FROM summaries)),
  (SELECT sum(size)::bigint FROM tables), 0,
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  extract(epoch FROM clock_timestamp())::float8""",
}


async def size(url: str, limits: StoreSettings) -> StoreState | None:
    """Return how large a database is; None where there is none yet.

    Raises:
        SchemaError: It has not our tables.
        StoreError: It cannot be opened.
    """
    if is_missing(url):  # to look must not create it
        return None
    async with opened(url, limits) as database:
        before = time.time()
        found = await database.read(_asked, by_index=False)
        middle = (before + time.time()) / 2
        offered = database.driver.connections
        connections = None
        if offered is not None:
            asked = await database.read(lambda c: c.exec_driver_sql(offered), by_index=False)
            connections = int(asked.scalar_one())
    rows, owners, summaries, total, exact, connected, now = found
    return StoreState(
        rows=rows,
        owners=owners,
        summaries=summaries,
        bytes=total,
        exact=bool(exact),
        connections=connections,
        connected=connected,
        ahead_seconds=None if now is None else now - middle,
    )


async def _asked(connection: AsyncConnection) -> Sequence[Any]:
    found = await connection.exec_driver_sql(_QUESTIONS[connection.dialect.name])
    return found.one()
