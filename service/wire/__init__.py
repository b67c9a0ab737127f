"""Everything that travels on the bus: requests, responses, events, rows, and their documents."""

from service.wire.protocol import BuildRequest, BuildResponse, Topics, decode

__all__ = ["BuildRequest", "BuildResponse", "Topics", "decode"]
