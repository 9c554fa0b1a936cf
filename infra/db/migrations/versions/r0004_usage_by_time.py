"""Indexes for reading lines of the usage ledger a page at a time."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

LINES = ["month", "at", "job_id", "service"]


def upgrade() -> None:
    """Create the indexes; the old one by project had only the month."""
    op.drop_index("ix_usage_project_id", "usage")
    op.create_index("ix_usage_project_id", "usage", ["project_id", *LINES])
    op.create_index("ix_usage_month", "usage", LINES)


def downgrade() -> None:
    op.drop_index("ix_usage_month", "usage")
    op.drop_index("ix_usage_project_id", "usage")
    op.create_index("ix_usage_project_id", "usage", ["project_id", "month"])
