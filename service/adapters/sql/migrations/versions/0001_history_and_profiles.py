"""Create the tables of history and profiles."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# compared byte by byte on every database
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create three tables, and the indexes that bound every read."""
    op.create_table(
        "owners",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "profiles",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "messages",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("id", NAME, primary_key=True),
        sa.Column("conversation_id", NAME),
        sa.Column("sort_time", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("tokenizer", sa.Text, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("printed_tokens", sa.Integer, nullable=False),
        sa.Column("owner_rows", sa.BigInteger, nullable=False),
        sa.Column("owner_tokens", sa.BigInteger, nullable=False),
        sa.Column("conversation_rows", sa.BigInteger, nullable=False),
        sa.Column("conversation_tokens", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    for name, columns in INDEXES.items():
        op.create_index(name, "messages", columns)


INDEXES = {
    "messages_by_owner": ["owner_key", "sort_time", "sequence"],
    "messages_by_conversation": ["owner_key", "conversation_id", "sort_time", "sequence"],
    "messages_by_owner_tokens": ["owner_key", "owner_tokens", "sort_time", "sequence"],
    "messages_by_conversation_tokens": [
        "owner_key",
        "conversation_id",
        "conversation_tokens",
        "sort_time",
        "sequence",
    ],
}
