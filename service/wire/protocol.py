"""Names and limits of the bus protocol: version, topics, consumer groups, stream lengths."""

from enum import StrEnum
from typing import Final

SCHEMA_VERSION: Final = "1.0"


class Topics(StrEnum):
    """Names of channels and streams, without the configured prefix."""

    CONTEXT_BUILD_REQUEST = "context.build.request"
    CONTEXT_BUILD_RESPONSE = "context.build.response"
    CONTEXT_BUILD_DEAD = "context.build.dead"
    CONTEXT_RECALL_REQUEST = "context.recall.request"
    CONTEXT_RECALL_RESPONSE = "context.recall.response"
    LLM_RESULTS = "llm.results"
    TOOLS_RESULTS = "tools.results"
    HISTORY_IMPORT = "history.import"
    CONTEXT_PRUNED = "context.pruned"
    CONTEXT_SUMMARIZED = "context.summarized"
    CONTEXT_COMPACTED = "context.compacted"


#: The streams of rows, which the recorder reads.
ROW_TOPICS: Final = (Topics.LLM_RESULTS, Topics.TOOLS_RESULTS, Topics.HISTORY_IMPORT)
#: All streams whose entries aren't answered where they are.
SIDE_TOPICS: Final = (Topics.CONTEXT_RECALL_REQUEST, *ROW_TOPICS)
#: The consumer groups that read requests and rows.
REQUESTS_GROUP: Final = "context-builders"
RESULTS_GROUP: Final = "context-recorders"
#: Approximate limits of the entries in a reply stream and in the dead-letter stream.
REPLY_MAX_LENGTH: Final = 1000
DEAD_MAX_LENGTH: Final = 100_000
