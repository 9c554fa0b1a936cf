"""Rules for when a sound is on in a project's sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the rules; existing projects keep the service's."""
    op.add_column("projects", sa.Column("sound_rules", sa.Text))
