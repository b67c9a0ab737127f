"""Index rows by their time, for finding those that expire."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the index."""
    op.create_index("messages_by_time", "messages", ["sort_time"])
