"""Runs revisions on the connection that `service.adapters.sql.migrate` passes in.

Alembic loads this file by its path. Logging stays as the service has configured it.
"""

from alembic import context

from service.adapters.sql.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
