"""The tables of `infra.db.schema`, as long as this is the only revision; the next one writes them out here."""

from __future__ import annotations

from alembic import op

from infra.db.schema import metadata

revision = "0015"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
