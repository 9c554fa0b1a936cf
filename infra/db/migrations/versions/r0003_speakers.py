"""Registered speakers, their voice samples, and recordings to delete."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "speakers",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("organization_id", sa.String(24), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_speakers"),
        _owned("speakers", "organization"),
        sa.UniqueConstraint("organization_id", "name", name="uq_speakers_organization_id"),
    )
    op.create_table(
        "samples",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("speaker_id", sa.String(24), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("length_ms", sa.BigInteger, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("model_sha256", sa.String(64), nullable=False),
        sa.Column("voice", sa.String(200)),
        sa.PrimaryKeyConstraint("id", name="pk_samples"),
        _owned("samples", "speaker"),
    )
    op.create_index("ix_samples_speaker_id", "samples", ["speaker_id"])
    op.create_table(
        "discards",
        sa.Column("voice", sa.String(200), nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("voice", name="pk_discards"),
    )


def downgrade() -> None:
    """Drop the tables; recordings in the voice store remain."""
    for table in "discards", "samples", "speakers":
        op.drop_table(table)


def _owned(table: str, owner: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{owner}_id_{owner}s"
    return sa.ForeignKeyConstraint([f"{owner}_id"], [f"{owner}s.id"], name=name, ondelete="CASCADE")
