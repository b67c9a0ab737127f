"""Add the flags of rows that are pruned or fell out of a context, and the archive."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# compared byte by byte on every database
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
# given out by the database
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the flag of pruned rows, and the tables of rows that fell out; no row is copied."""
    op.add_column(
        "messages", sa.Column("pruned", sa.Integer, nullable=False, server_default=sa.text("0"))
    )
    for scope, members in SCOPES.items():
        op.drop_index(f"messages_by_{scope}_tokens", "messages")
        columns = [*members, "pruned", f"{scope}_tokens", "sort_time", "sequence"]
        op.create_index(f"messages_by_{scope}_tokens", "messages", columns)
    op.create_table(
        "fallen",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("id", NAME, primary_key=True),
    )
    op.create_table(
        "archive",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("owner_key", NAME, nullable=False),
        sa.Column("archived_at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("build_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("archive_by_owner", "archive", ["owner_key", "number"])
    op.create_index("archive_by_time", "archive", ["archived_at"])


SCOPES = {"owner": ["owner_key"], "conversation": ["owner_key", "conversation_id"]}
