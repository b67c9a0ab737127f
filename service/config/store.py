"""Settings of the store."""

from typing import Annotated

from pydantic import Field, SecretStr

from service.config.section import Section


class StoreSettings(Section):
    """Where history and profiles are kept, for how long, and how Postgres is asked."""

    url: SecretStr = SecretStr("memory://")
    #: Days after which workers delete rows of history, by the rows' own time; None keeps them.
    retention_days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] | None = None
    #: Connections of a process to Postgres; half of them are for reading, so that no writer keeps
    #: builds up.
    pool_size: Annotated[int, Field(ge=2, le=1_000)] = 10
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] = 5.0
    #: A statement that takes longer is given up, waiting for another worker included.
    statement_timeout_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 30.0
