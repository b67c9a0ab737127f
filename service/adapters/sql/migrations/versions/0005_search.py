"""Create the search index of histories; stored rows are indexed after the upgrade."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

# compared byte by byte on every database
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
# given out by the database
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TERMS = sa.ARRAY(sa.BigInteger).with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    """Create three tables, and the database's own index of terms."""
    op.create_table(
        "searched",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("owner_key", NAME, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("sort_time", sa.BigInteger, nullable=False),
        sa.Column("id", NAME, nullable=False),
        sa.Column("terms", TERMS, nullable=False),
    )
    op.create_index("searched_by_owner", "searched", ["owner_key", "sequence"], unique=True)
    op.create_table(
        "term_counts",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("term", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "indexing",
        sa.Column("owner_key", NAME, primary_key=True),
        sa.Column("id", NAME, primary_key=True),
    )
    # a pass that starts before the first row; none if there are no rows
    op.execute("INSERT INTO indexing SELECT '', '' FROM messages LIMIT 1")
    for statement in INDEX[op.get_bind().dialect.name]:
        op.execute(statement)


INDEX = {
    "sqlite": (
        # words are numbers; queries only ask which rows have them
        "CREATE VIRTUAL TABLE full_text USING fts5(terms, content='searched',"
        " content_rowid='number', tokenize='ascii', detail='none', columnsize=0)",
        "CREATE TRIGGER searched_added AFTER INSERT ON searched BEGIN"
        " INSERT INTO full_text (rowid, terms) VALUES (new.number, new.terms); END",
        "CREATE TRIGGER searched_deleted AFTER DELETE ON searched BEGIN"
        " INSERT INTO full_text (full_text, rowid, terms)"
        " VALUES ('delete', old.number, old.terms); END",
    ),
    "postgresql": (
        # every search would read through a list of pending entries
        "CREATE INDEX searched_by_term ON searched USING gin (terms) WITH (fastupdate = off)",
    ),
}
