"""The tables of the SQL store, as the newest migration leaves them."""

import re
from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, text
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
#: along (sort_time, sequence), up to and including the row, and sum ``printed_tokens``; pruned rows
#: have totals as well, but count nothing in them. Rows expire from the old end and are still
#: counted in the totals of the others, so that none has to be written anew: what counts is by how
#: much the totals of two rows differ.
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
    Column("body", Text, nullable=False),  # behind what is read most: nothing is read past it
    Column("pruned", Integer, nullable=False, server_default=text("0")),  # 1 where hidden by hand
    Index("messages_by_owner", "owner_key", "sort_time", "sequence"),
    Index("messages_by_time", "sort_time"),  # of all owners: what expires next
    Index("messages_by_conversation", "owner_key", "conversation_id", "sort_time", "sequence"),
    # A total never falls along the order, so these two are in that order as well: a bound on
    # tokens is a range, without the rows that are pruned.
    Index(
        "messages_by_owner_tokens", "owner_key", "pruned", "owner_tokens", "sort_time", "sequence"
    ),
    Index(
        "messages_by_conversation_tokens",
        "owner_key",
        "conversation_id",
        "pruned",
        "conversation_tokens",
        "sort_time",
        "sequence",
    ),
)

#: Rows that once fell out of their owner's context; each is told of once.
fallen: Final = Table(
    "fallen",
    metadata,
    Column("owner_key", Text, primary_key=True),
    Column("id", Text, primary_key=True),
)

#: Copies of rows that fell out, for a while.
archive: Final = Table(
    "archive",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("owner_key", Text, nullable=False),
    Column("archived_at", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("reason", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("build_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("archive_by_owner", "owner_key", "number"),
    Index("archive_by_time", "archived_at"),
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
    Column("first_id", Text, nullable=False),  # the oldest row that it covers
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


def key(name: str) -> str:
    """Return text that tells rows apart in a key column: a NUL, which Postgres refuses, escaped."""
    return name.replace("\\", "\\\\").replace("\0", "\\0")


def name_of(kept: str) -> str:
    """Return the text that `key` made a key of."""
    return re.sub(r"\\([\\0])", lambda found: "\0" if found[1] == "0" else "\\", kept)
