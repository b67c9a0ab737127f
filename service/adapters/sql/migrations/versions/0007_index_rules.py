"""Note the rules that the search index was made by, so that an outdated one is rebuilt."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

# the only rules before this revision
RULES = "1-bd9795340947"


def upgrade() -> None:
    """Create the note; it is empty until all rows are indexed."""
    op.create_table("index_rules", sa.Column("rules", sa.Text, primary_key=True))
    op.execute(
        f"INSERT INTO index_rules SELECT CASE WHEN EXISTS (SELECT 1 FROM indexing)"  # noqa: S608 - ours
        f" THEN '' ELSE '{RULES}' END"
    )
    op.add_column("indexing", sa.Column("rules", sa.Text))
