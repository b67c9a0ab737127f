"""The tables of the SQL store, as the newest migration leaves them."""

import re
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

#: What makes a number of 64 bits unsigned.
_ALL_BITS: Final = 2**64 - 1


class Keys(TypeDecorator[Sequence[int]]):
    """Numbers of 64 bits: an array in Postgres, words of 16 digits in SQLite, for its full text."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's type in a database."""
        kind = ARRAY(BigInteger) if dialect.name == "postgresql" else Text()
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> object:
        """Return what the driver takes."""
        if value is None or dialect.name == "postgresql":
            return value
        return " ".join(map(as_word, value))

    def process_result_value(self, value: Any, dialect: Dialect) -> Sequence[int] | None:  # noqa: ANN401 - the driver's
        """Return what the driver gave as numbers."""
        if value is None or dialect.name == "postgresql":
            found: Sequence[int] | None = value
            return found
        return [_number(word) for word in value.split()]


def as_word(key: int) -> str:
    """Write a number down in the 16 digits by which SQLite's full text knows it."""
    return f"{key & _ALL_BITS:016x}"


def _number(word: str) -> int:
    return int.from_bytes(bytes.fromhex(word), signed=True)


metadata: Final = MetaData()

#: Text that rows are found by. Compared byte by byte: SQLite does so by itself, and Postgres would
#: else ask the language of the database, whose rules may change with the machine's libraries.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
#: Numbers that the database gives out; SQLite does so for INTEGER alone, which has 64 bits there.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")

#: One row an owner. Its update is the first statement of every append, and locks the owner.
owners: Final = Table(
    "owners",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
)

#: Columns are there to find rows by; what callers stored and get back is ``body``. The totals run
#: along (sort_time, sequence), up to and including the row, and sum ``printed_tokens``, or in the
#: native ones ``native_tokens``; pruned rows have totals as well, but count nothing in them. Rows
#: expire from the old end and are still counted in the totals of the others, so that none has to be
#: written anew: what counts is by how much the totals of two rows differ.
messages: Final = Table(
    "messages",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("id", _NAME, primary_key=True),
    Column("conversation_id", _NAME),
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
    Column("native_tokens", Integer, nullable=False, server_default=text("0")),
    Column("owner_native", BigInteger, nullable=False, server_default=text("0")),
    Column("conversation_native", BigInteger, nullable=False, server_default=text("0")),
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
    Column("owner_key", _NAME, primary_key=True),
    Column("id", _NAME, primary_key=True),
)

#: Copies of rows that fell out, for a while.
archive: Final = Table(
    "archive",
    metadata,
    Column("number", _NUMBER, primary_key=True),
    Column("owner_key", _NAME, nullable=False),
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
    Column("owner_key", _NAME, primary_key=True),
    Column("body", Text, nullable=False),
)

#: Numbered in the order in which they were put, over all owners.
summaries: Final = Table(
    "summaries",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("owner_key", _NAME, nullable=False),
    Column("id", _NAME, nullable=False),
    Column("conversation_id", _NAME),
    Column("first_id", _NAME, nullable=False),  # the oldest row that it covers
    Column("body", Text, nullable=False),
    Index("summaries_by_scope", "owner_key", "conversation_id", "number"),
)

#: Who may summarise an owner's history, and until when.
claims: Final = Table(
    "claims",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("token", Text, nullable=False),
    Column("until", BigInteger, nullable=False),  # microseconds since 1970, UTC
)

#: What the rows that are shown are found by. SQLite has the virtual table ``full_text`` over it,
#: which triggers keep in step, and Postgres the GIN index ``searched_by_term``.
searched: Final = Table(
    "searched",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("owner_key", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("sort_time", BigInteger, nullable=False),
    Column("id", _NAME, nullable=False),
    Column("terms", Keys, nullable=False),  # ascending
    Index("searched_by_owner", "owner_key", "sequence", unique=True),
)

#: How many of an owner's rows in ``searched`` have a term.
term_counts: Final = Table(
    "term_counts",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
)

#: Up to which row a pass over all of them has come; no row where there is no pass. Without
#: ``rules`` it puts rows into ``searched`` that were stored before there was that, else it brings
#: those in it to these rules.
indexing: Final = Table(
    "indexing",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("id", _NAME, primary_key=True),
    Column("rules", Text),
)

#: One row: the rules of `service.recall.terms` that the terms in ``searched`` were made by.
index_rules: Final = Table("index_rules", metadata, Column("rules", Text, primary_key=True))

#: INSERT … ON CONFLICT, which SQLAlchemy has by dialect; SQLite's form is made of Postgres' one.
insert: Final = postgresql.insert


def key(name: str) -> str:
    """Return text that tells rows apart in a key column: a NUL, which Postgres refuses, escaped."""
    return name.replace("\\", "\\\\").replace("\0", "\\0")


def from_key(text: str) -> str:
    """Return the text that `key` was given."""
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else "\\", text)


_ESCAPED: Final = re.compile(r"\\([\\0])")
