"""Partitions that stopped, and the operator's decisions on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "stopped_partitions",
        sa.Column("partition", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("topic", sa.String(249), nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("decision", sa.String(8)),
        sa.PrimaryKeyConstraint("partition", name="pk_stopped_partitions"),
    )
