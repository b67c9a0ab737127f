"""Names of streams, groups and keys as in docs/wire.md, written without the service's code."""

import hashlib
from typing import Final

STREAM: Final = "context.build.request"
RESPONSES: Final = "context.build.response"
DEAD: Final = "context.build.dead"
GROUP: Final = "context-builders"
ROW_STREAMS: Final = ("llm.results", "tools.results")
ROW_GROUP: Final = "context-recorders"


def result_key(owner_key: str, request_id: str) -> str:
    """Return where the answer to a request is stored."""
    owner = owner_key.encode()
    hashed = hashlib.sha256(b"%d:%b%b" % (len(owner), owner, request_id.encode())).hexdigest()
    return f"context.build.result.{{{STREAM}}}.{hashed}"
