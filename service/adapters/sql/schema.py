"""The tables of the SQL store, as the newest migration leaves them."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY

from service.adapters.store_records import keys_to_words, words_to_keys


class _KeyWords(Text):
    """Keys of the search index in SQLite, as words for its full text."""

    def bind_processor(self, _dialect: Dialect) -> Callable[[Any], str]:
        """Return the function that writes keys for the driver."""
        return keys_to_words

    def result_processor(self, _dialect: Dialect, _coltype: object) -> Callable[[Any], Any]:
        """Return the function that reads the driver's text; null is no entry."""
        return words_to_keys


metadata: Final = MetaData()

#: Text in keys and indexes. Compared byte by byte, as SQLite does by default; Postgres would use
#: the collation of the database, which may change with the machine's libraries.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
#: Numbers that the database generates; SQLite does so for INTEGER only, which has 64 bits there.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")
_KEYS: Final = ARRAY(BigInteger).with_variant(_KeyWords(), "sqlite")

#: One row per owner. Every append updates it first, which locks the owner.
owners: Final = Table(
    "owners",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
)

#: Callers store and get back ``body``; the other columns are for finding rows. The totals run in
#: the order of (sort_time, sequence), up to and including the row, and sum ``printed_tokens``, or
#: in the native ones ``native_tokens``; pruned rows have totals too, but add nothing. Rows expire
#: from the old end and stay in the totals of the others, so that these needn't be rewritten: only
#: the differences between totals are used.
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
    Column("body", Text, nullable=False),  # after the columns that are read most, as it is long
    Column("pruned", Integer, nullable=False, server_default=text("0")),  # 1 if hidden by hand
    Column("native_tokens", Integer, nullable=False, server_default=text("0")),
    Column("owner_native", BigInteger, nullable=False, server_default=text("0")),
    Column("conversation_native", BigInteger, nullable=False, server_default=text("0")),
    Index("messages_by_owner", "owner_key", "sort_time", "sequence"),
    Index("messages_by_time", "sort_time"),  # over all owners: what expires next
    Index("messages_by_conversation", "owner_key", "conversation_id", "sort_time", "sequence"),
    # Totals never decrease in the order of rows, so these two indexes are in that order too: a
    # bound on tokens is a range, without pruned rows.
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

#: Rows that once fell out of their owner's context; each is reported once.
fallen: Final = Table(
    "fallen",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("id", _NAME, primary_key=True),
)

#: Copies of rows that fell out; they expire.
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

#: Numbered in the order of insertion, over all owners.
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

#: Leases on summarising an owner's history.
claims: Final = Table(
    "claims",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("token", Text, nullable=False),
    Column("until", BigInteger, nullable=False),  # microseconds since 1970, UTC
)

#: The search index: the keys of all rows that are not pruned. SQLite has the virtual table
#: ``full_text`` over it, which triggers keep in step, and Postgres the GIN index
#: ``searched_by_term``.
searched: Final = Table(
    "searched",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("owner_key", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("sort_time", BigInteger, nullable=False),
    Column("id", _NAME, nullable=False),
    Column("terms", _KEYS, nullable=False),  # ascending
    Index("searched_by_owner", "owner_key", "sequence", unique=True),
)

#: How many of an owner's rows in ``searched`` have a key.
term_counts: Final = Table(
    "term_counts",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
)

#: The last row that a pass over all rows has handled; empty if no pass is running. Without
#: ``rules`` the pass indexes rows that were stored before there was an index, else it brings the
#: index to these rules.
indexing: Final = Table(
    "indexing",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("id", _NAME, primary_key=True),
    Column("rules", Text),
)

#: One row: the rules of `service.recall.terms` by which the keys in ``searched`` were made.
index_rules: Final = Table("index_rules", metadata, Column("rules", Text, primary_key=True))

#: Vectors of the rows in ``searched`` that have printed tokens; pruned rows keep theirs.
vectors: Final = Table(
    "vectors",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("id", _NAME, primary_key=True),
    Column("model", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),  # empty if the model refuses the text
)

#: Owners whose rows up to a sequence number have vectors of a model. Locked after the owner.
vector_queue: Final = Table(
    "vector_queue",
    metadata,
    Column("owner_key", _NAME, primary_key=True),
    Column("model", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # when the next rows may be taken, in microseconds since 1970, UTC; null if none wait
    Column("due", BigInteger),
    Index("vector_queue_by_due", "due"),
)

#: INSERT … ON CONFLICT. SQLAlchemy has one for each dialect; Postgres' also works with SQLite.
insert: Final = postgresql.insert
