"""Rules for when a sound is on in a project's sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the rules; existing projects keep the service's."""
    with op.batch_alter_table("projects") as table:
        table.add_column(sa.Column("sound_rules", sa.Text))


def downgrade() -> None:
    with op.batch_alter_table("projects") as table:
        table.drop_column("sound_rules")
