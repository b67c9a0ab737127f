"""The stores of history, profiles and summaries in an SQL database."""

from typing import Final

#: The database that a URL's scheme names; Postgres needs the extra ``postgres``.
DATABASES: Final = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "postgresql+asyncpg": "postgres",
    "sqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",
}
