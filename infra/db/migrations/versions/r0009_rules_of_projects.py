"""When a sound is on in the sessions of a project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the rules; projects that are there keep to the service's."""
    with op.batch_alter_table("projects") as table:
        table.add_column(sa.Column("sound_rules", sa.Text))


def downgrade() -> None:
    with op.batch_alter_table("projects") as table:
        table.drop_column("sound_rules")
