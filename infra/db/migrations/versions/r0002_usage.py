"""Usage of jobs, and the free amount of a project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table and the column; existing projects stay unlimited."""
    op.create_table(
        "usage",
        sa.Column("job_id", sa.String(24), nullable=False),
        sa.Column("service", sa.String(40), nullable=False),
        sa.Column("project_id", sa.String(24), nullable=False),
        sa.Column("organization_id", sa.String(24), nullable=False),
        sa.Column("audio_ms", sa.BigInteger, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "service", name="pk_usage"),
    )
    op.create_index("ix_usage_project_id", "usage", ["project_id", "month"])
    op.add_column("projects", sa.Column("free_seconds", sa.BigInteger))


def downgrade() -> None:
    """Drop both; the usage is lost."""
    op.drop_column("projects", "free_seconds")
    op.drop_table("usage")
