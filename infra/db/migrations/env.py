"""Run by alembic: the revisions, on the connection and in the transaction of `infra.db.database`.

A revision must not use `batch_alter_table`: on SQLite that may drop and recreate a table, which deletes all rows that
refer to it.
"""

from alembic import context

from infra.db.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
