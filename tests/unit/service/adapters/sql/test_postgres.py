"""What of a Postgres URL may be shown."""

import pytest

from service.adapters.sql.postgres import host_and_database


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:secret@db.example:5432/main", "db.example:5432/main"),
        ("postgres://db/main", "db/main"),
        ("postgresql+asyncpg://user:secret@db/main?sslmode=require", "db/main"),
        ("postgresql://user:sec@ret/x@db/main", "db/main"),
        ("postgresql://user:secret@a:1,b:2/main", "a:1,b:2/main"),
        ("postgresql://user:secret@[::1]:5432/main", "[::1]:5432/main"),
        ("postgresql://user:secret@/main?host=/run", "/main"),
        # where a part of a password could be among it, nothing is
        ("postgresql://user:se?cret@db/main", "Postgres"),
        ("postgresql://db/main?user=u&password=sec@ret", "Postgres"),
        ("postgresql://user:secret@sec ret/main", "Postgres"),
    ],
)
def test_host_and_database_are_shown(url: str, shown: str) -> None:
    """Nothing that could be of a password is."""
    assert host_and_database(url) == shown
