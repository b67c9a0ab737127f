"""Add the tokens of rows as native messages, and their running totals."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

COLUMNS = {
    "native_tokens": sa.Integer,
    "owner_native": sa.BigInteger,
    "conversation_native": sa.BigInteger,
}


def upgrade() -> None:
    """Add three columns, and fill them with estimates: the tokens of calls are not known."""
    for name, kind in COLUMNS.items():
        column = sa.Column(name, kind, nullable=False, server_default=sa.text("0"))
        op.add_column("messages", column)
    op.execute(FILL)


# a message's overhead is 4; pruned rows add nothing to totals
FILL = """
UPDATE messages
SET native_tokens = messages.tokens + 4,
    owner_native = running.of_owner,
    conversation_native = running.of_conversation
FROM (
    SELECT owner_key, id,
        sum((tokens + 4) * (1 - pruned)) OVER (
            PARTITION BY owner_key ORDER BY sort_time, sequence
        ) AS of_owner,
        sum((tokens + 4) * (1 - pruned)) OVER (
            PARTITION BY owner_key, conversation_id ORDER BY sort_time, sequence
        ) AS of_conversation
    FROM messages
) AS running
WHERE messages.owner_key = running.owner_key AND messages.id = running.id
"""
