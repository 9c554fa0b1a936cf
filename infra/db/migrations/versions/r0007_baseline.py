"""The tables of the oldest version whose data this one reads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = None

_LIVE = "revoked_at IS NULL AND project_id IS"
LIVE_KEYS = {"project": sa.text(f"{_LIVE} NOT NULL"), "organization": sa.text(f"{_LIVE} NULL")}


def upgrade() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.String(24), primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, unique=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(24), primary_key=True),
        sa.Column("organization_id", sa.String(24), _owner("organizations"), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("free_seconds", sa.BigInteger),
        sa.Column("keep_audio_seconds", sa.BigInteger),
        sa.UniqueConstraint("organization_id", "name"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("organization_id", sa.String(24), _owner("organizations"), nullable=False),
        sa.Column("project_id", sa.String(24), _owner("projects"), index=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("shown", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("last_used_at", sa.BigInteger),
    )
    for owner, live in LIVE_KEYS.items():
        name, columns = f"one_live_{owner}_key", [f"{owner}_id"]
        op.create_index(name, "keys", columns, unique=True, sqlite_where=live, postgresql_where=live)
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("job_id", sa.String(24), primary_key=True),
        sa.Column("service", sa.String(40), primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True, server_default="0"),
        sa.Column("project_id", sa.String(24), nullable=False),
        sa.Column("organization_id", sa.String(24), nullable=False),
        sa.Column("audio_ms", sa.BigInteger, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
    )
    op.create_index("ix_usage_project_id", "usage", ["project_id", "month", "at", "job_id", "service"])
    op.create_index("ix_usage_month", "usage", ["month", "at", "job_id", "service"])
    op.create_table(
        "speakers",
        sa.Column("id", sa.String(24), primary_key=True),
        sa.Column("organization_id", sa.String(24), _owner("organizations"), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("organization_id", "name"),
    )
    op.create_table(
        "samples",
        sa.Column("id", sa.String(24), primary_key=True),
        sa.Column("speaker_id", sa.String(24), _owner("speakers"), nullable=False, index=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("length_ms", sa.BigInteger, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("model_sha256", sa.String(64), nullable=False),
        sa.Column("voice", sa.String(200)),
    )
    op.create_table(
        "discards",
        sa.Column("voice", sa.String(200), primary_key=True),
        sa.Column("due_at", sa.BigInteger, nullable=False),
    )


def _owner(table: str) -> sa.ForeignKey:
    return sa.ForeignKey(f"{table}.id", ondelete="CASCADE")
