"""The time a key was last used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the time; it is unknown for existing keys."""
    with op.batch_alter_table("keys") as table:
        table.add_column(sa.Column("last_used_at", sa.BigInteger))


def downgrade() -> None:
    with op.batch_alter_table("keys") as table:
        table.drop_column("last_used_at")
