"""Note by which rules terms were made, so that an index of others' is known, and made anew."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# all that were ever used before there was this note
RULES = "1-bd9795340947"


def upgrade() -> None:
    """Create the note; where rows are not indexed yet, it is empty until they are."""
    op.create_table("index_rules", sa.Column("rules", sa.Text, primary_key=True))
    op.execute(
        f"INSERT INTO index_rules SELECT CASE WHEN EXISTS (SELECT 1 FROM indexing)"  # noqa: S608 - ours
        f" THEN '' ELSE '{RULES}' END"
    )
    op.add_column("indexing", sa.Column("rules", sa.Text))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("indexing", "rules")
    op.drop_table("index_rules")
