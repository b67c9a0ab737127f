"""What all messages on the bus share: topics, version, limits and envelope."""

from enum import StrEnum
from typing import Final

SCHEMA_VERSION: Final = "1.0"


class Topics(StrEnum):
    """The names of channels and streams, before a configured prefix."""

    CONTEXT_BUILD_REQUEST = "context.build.request"
    CONTEXT_BUILD_RESPONSE = "context.build.response"
    CONTEXT_BUILD_DEAD = "context.build.dead"
    LLM_RESULTS = "llm.results"
    TOOLS_RESULTS = "tools.results"
    CONTEXT_PRUNED = "context.pruned"
    CONTEXT_SUMMARIZED = "context.summarized"
    CONTEXT_COMPACTED = "context.compacted"


#: The consumer groups that read requests, and rows of results.
REQUESTS_GROUP: Final = "context-builders"
RESULTS_GROUP: Final = "context-recorders"
#: Entries that a stream of replies and the dead-letter stream keep, approximately.
REPLY_MAX_LENGTH: Final = 1000
DEAD_MAX_LENGTH: Final = 100_000
