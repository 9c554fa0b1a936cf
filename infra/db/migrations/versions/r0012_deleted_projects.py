"""Projects that were deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "deleted_projects",
        sa.Column("project_id", sa.String(24), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_deleted_projects"),
    )
