"""How long a project keeps the audio of its jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the time; existing projects follow the operator's setting."""
    with op.batch_alter_table("projects") as table:
        table.add_column(sa.Column("keep_audio_seconds", sa.BigInteger))


def downgrade() -> None:
    with op.batch_alter_table("projects") as table:
        table.drop_column("keep_audio_seconds")
