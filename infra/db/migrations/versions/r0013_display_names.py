"""Names of speakers as people write them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column."""
    op.add_column("speakers", sa.Column("display_name", sa.String(100)))
