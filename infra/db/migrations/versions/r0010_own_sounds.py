"""Sounds that projects teach, and the marked passages they are learnt from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the tables; existing projects keep no embeddings to learn from."""
    op.add_column("projects", sa.Column("keep_embeddings", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "own_sounds",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("project_id", sa.String(24), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("reported", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("learnt_at", sa.BigInteger),
        sa.Column("graph", sa.String(64)),
        sa.Column("stream", sa.LargeBinary),
        sa.Column("recording", sa.LargeBinary),
        sa.Column("figures", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_own_sounds"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_own_sounds_project_id_projects", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("project_id", "name", name="uq_own_sounds_project_id"),
    )
    op.create_table(
        "own_marks",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("sound_id", sa.String(24), nullable=False),
        sa.Column("job", sa.Boolean, nullable=False),
        sa.Column("source", sa.String(24), nullable=False),
        sa.Column("start_ms", sa.BigInteger, nullable=False),
        sa.Column("end_ms", sa.BigInteger, nullable=False),
        sa.Column("correct", sa.Boolean, nullable=False),
        sa.Column("graph", sa.String(64), nullable=False),
        sa.Column("embeddings", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_own_marks"),
        sa.ForeignKeyConstraint(
            ["sound_id"], ["own_sounds.id"], name="fk_own_marks_sound_id_own_sounds", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("sound_id", "source", "start_ms", "end_ms", name="uq_own_marks_sound_id"),
    )
