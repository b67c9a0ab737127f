"""The tables of the SQL store, as the newest migration leaves them."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text
from sqlalchemy.dialects import sqlite

metadata: Final = MetaData()

#: One row an owner. Its update is the first statement of every append, and locks the owner.
owners: Final = Table(
    "owners",
    metadata,
    Column("owner_key", Text, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
)

#: Columns are there to find rows by; what callers stored and get back is ``body``. The totals run
#: along (sort_time, sequence), up to and including the row, and sum ``printed_tokens``.
messages: Final = Table(
    "messages",
    metadata,
    Column("owner_key", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text),
    Column("sort_time", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("sequence", BigInteger, nullable=False),  # the owner's rows in order of arrival
    Column("tokenizer", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("printed_tokens", Integer, nullable=False),
    Column("owner_rows", BigInteger, nullable=False),
    Column("owner_tokens", BigInteger, nullable=False),
    Column("conversation_rows", BigInteger, nullable=False),
    Column("conversation_tokens", BigInteger, nullable=False),
    Column("body", Text, nullable=False),  # last: no other column is read past its length
    Index("messages_by_owner", "owner_key", "sort_time", "sequence"),
    Index("messages_by_conversation", "owner_key", "conversation_id", "sort_time", "sequence"),
    # A total never falls along the order, so these two are in that order as well: a bound on
    # tokens is a range.
    Index("messages_by_owner_tokens", "owner_key", "owner_tokens", "sort_time", "sequence"),
    Index(
        "messages_by_conversation_tokens",
        "owner_key",
        "conversation_id",
        "conversation_tokens",
        "sort_time",
        "sequence",
    ),
)

profiles: Final = Table(
    "profiles",
    metadata,
    Column("owner_key", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

#: Numbered in the order in which they were put, over all owners.
summaries: Final = Table(
    "summaries",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("owner_key", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("conversation_id", Text),
    Column("body", Text, nullable=False),
    Index("summaries_by_scope", "owner_key", "conversation_id", "number"),
)

#: Who may summarise an owner's history, and until when.
claims: Final = Table(
    "claims",
    metadata,
    Column("owner_key", Text, primary_key=True),
    Column("token", Text, nullable=False),
    Column("until", BigInteger, nullable=False),  # microseconds since 1970, UTC
)

#: INSERT … ON CONFLICT, the one statement that every dialect has a form of its own for.
insert: Final = sqlite.insert


def key(text: str) -> str:
    """Return text that tells rows apart in a key column: a NUL, which Postgres refuses, escaped."""
    return text.replace("\\", "\\\\").replace("\0", "\\0")
