"""Organizations, projects, keys and shared secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

LIVE_PROJECT_KEY = sa.text("revoked_at IS NULL AND project_id IS NOT NULL")
LIVE_ORGANIZATION_KEY = sa.text("revoked_at IS NULL AND project_id IS NULL")


def upgrade() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_organizations"),
        sa.UniqueConstraint("name", name="uq_organizations_name"),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(24), nullable=False),
        sa.Column("organization_id", sa.String(24), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        _owned("projects", "organization"),
        sa.UniqueConstraint("organization_id", "name", name="uq_projects_organization_id"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("organization_id", sa.String(24), nullable=False),
        sa.Column("project_id", sa.String(24)),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("shown", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        _owned("keys", "organization"),
        _owned("keys", "project"),
        sa.UniqueConstraint("digest", name="uq_keys_digest"),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_secrets"),
    )
    op.create_index("ix_keys_project_id", "keys", ["project_id"])
    _unique_while("one_live_project_key", "project_id", LIVE_PROJECT_KEY)
    _unique_while("one_live_organization_key", "organization_id", LIVE_ORGANIZATION_KEY)


def downgrade() -> None:
    for table in "secrets", "keys", "projects", "organizations":
        op.drop_table(table)


def _owned(table: str, owner: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{owner}_id_{owner}s"
    return sa.ForeignKeyConstraint([f"{owner}_id"], [f"{owner}s.id"], name=name, ondelete="CASCADE")


def _unique_while(name: str, column: str, condition: sa.TextClause) -> None:
    op.create_index(name, "keys", [column], unique=True, sqlite_where=condition, postgresql_where=condition)
