"""Whether a server lets a process have as many connections as it may make."""

import structlog

from service.adapters.sql.engine import Database

log = structlog.get_logger()


async def warn_of_pool(database: Database) -> None:
    """Log where one process alone may make more connections than the server offers to all."""
    if (question := database.driver.connections) is None:
        return
    asked = await database.read(lambda connection: connection.exec_driver_sql(question))
    offered, pool_size = asked.scalar_one(), database.driver.readers + database.driver.writers
    if pool_size > offered:
        log.warning("store.pool_too_large", pool_size=pool_size, offered=offered)
