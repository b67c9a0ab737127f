"""Create the tables of vectors, and of the owners whose rows have none."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

# compared byte by byte on every database
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create two tables, and the index for taking the owner who has waited longest."""
    op.create_table(
        "vectors",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("id", NAME, primary_key=True),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "vector_queue",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("due", sa.BigInteger),
    )
    op.create_index("vector_queue_by_due", "vector_queue", ["due"])
