"""Names and limits of the bus protocol: version, topics, consumer groups, stream lengths."""

from enum import StrEnum
from typing import Final

SCHEMA_VERSION: Final = "1.0"


class Topics(StrEnum):
    """Names of channels and streams, without the configured prefix."""

    CONTEXT_BUILD_REQUEST = "context.build.request"
    CONTEXT_BUILD_RESPONSE = "context.build.response"
    CONTEXT_BUILD_DEAD = "context.build.dead"
    LLM_RESULTS = "llm.results"
    TOOLS_RESULTS = "tools.results"
    CONTEXT_PRUNED = "context.pruned"
    CONTEXT_SUMMARIZED = "context.summarized"
    CONTEXT_COMPACTED = "context.compacted"


#: The consumer groups that read requests and results.
REQUESTS_GROUP: Final = "context-builders"
RESULTS_GROUP: Final = "context-recorders"
#: Approximate limits of the entries in a reply stream and in the dead-letter stream.
REPLY_MAX_LENGTH: Final = 1000
DEAD_MAX_LENGTH: Final = 100_000
