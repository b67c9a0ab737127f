"""Everything that travels on the bus: requests, responses, events, rows, and their documents."""

from service.wire.protocol import Topics
from service.wire.request import BuildRequest, decode
from service.wire.response import BuildResponse

__all__ = ["BuildRequest", "BuildResponse", "Topics", "decode"]
