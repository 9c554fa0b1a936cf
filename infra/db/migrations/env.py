"""Run by alembic: the revisions, on the connection and in the transaction of `infra.db.database`."""

from alembic import context

from infra.db.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
