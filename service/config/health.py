"""The settings of what a worker tells over HTTP about itself."""

from typing import Annotated

from pydantic import Field

from service.config.section import Section, Text


class HealthSettings(Section):
    """Where a worker answers probes, and whoever collects its metrics."""

    #: An address of this machine; anybody who reaches it can read what is told.
    host: Text = "127.0.0.1"
    #: 0 takes a free one, which is logged, and so does the default where it is taken; None answers
    #: nobody.
    port: Annotated[int, Field(ge=0, le=65_535)] | None = 8765
