"""Run revisions on the connection that `service.adapters.sql.migrate` hands over.

Alembic loads this file by its path. Logging is the service's own and stays as it is.
"""

from alembic import context

from service.adapters.sql.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
