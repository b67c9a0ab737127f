"""Profiles in an SQL database."""

import json
from collections.abc import Mapping

from sqlalchemy import delete, select

from service.adapters.rows import checked_owner, to_json
from service.adapters.sql.engine import Database
from service.adapters.sql.schema import insert, key, profiles


class SqlProfiles:
    """The `ProfileStore` over SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile, or an empty one."""
        owner = key(checked_owner(owner_key))
        query = select(profiles.c.body).where(profiles.c.owner_key == owner)
        body = await self._database.read(lambda connection: connection.scalar(query))
        profile: dict[str, object] = {} if body is None else json.loads(body)
        return profile

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        owner = key(checked_owner(owner_key))
        put = insert(profiles).values(owner_key=owner, body=to_json(profile, "/profile"))
        put = put.on_conflict_do_update(
            index_elements=[profiles.c.owner_key], set_={"body": put.excluded.body}
        )
        await self._database.write(lambda connection: connection.execute(put))

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        owner = key(checked_owner(owner_key))
        gone = delete(profiles).where(profiles.c.owner_key == owner)
        erased = await self._database.write(lambda connection: connection.execute(gone))
        return erased.rowcount > 0
