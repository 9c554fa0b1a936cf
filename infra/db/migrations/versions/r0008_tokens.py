"""Tokens that stand for a key for a limited time, and a mark for keys that an operator chose."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table; any existing key may have been chosen."""
    op.create_table(
        "tokens",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("purpose", sa.String(8), nullable=False),
        sa.Column("key_id", sa.Integer, nullable=False),
        sa.Column("job_id", sa.String(24)),
        sa.Column("ends_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_tokens"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_tokens_key_id_keys", ondelete="CASCADE"),
    )
    op.create_index("ix_tokens_ends_at", "tokens", ["ends_at"])
    op.create_index("ix_tokens_key_id", "tokens", ["key_id", "purpose", "ends_at"])
    op.add_column("keys", sa.Column("chosen", sa.Boolean, nullable=False, server_default=sa.true()))
