"""Create the tables of summaries, and of leases on making them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# compared byte by byte on every database
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
# given out by the database
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create two tables, and the index for reading a scope's summaries."""
    op.create_table(
        "summaries",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("owner_key", NAME, nullable=False),
        sa.Column("id", NAME, nullable=False),
        sa.Column("conversation_id", NAME),
        sa.Column("first_id", NAME, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    columns = ["owner_key", "conversation_id", "number"]
    op.create_index("summaries_by_scope", "summaries", columns)
    op.create_table(
        "claims",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
