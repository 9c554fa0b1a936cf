"""Steps of sessions in the usage ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the step to the key; existing lines have step 0."""
    with op.batch_alter_table("usage") as table:
        table.add_column(sa.Column("step", sa.BigInteger, nullable=False, server_default="0"))
        table.drop_constraint("pk_usage", type_="primary")
        table.create_primary_key("pk_usage", ["job_id", "service", "step"])


def downgrade() -> None:
    """Drop the step; the usage of sessions is lost."""
    op.execute("DELETE FROM usage WHERE service = 'audio_session'")
    with op.batch_alter_table("usage") as table:
        table.drop_constraint("pk_usage", type_="primary")
        table.drop_column("step")
        table.create_primary_key("pk_usage", ["job_id", "service"])
