"""The JSON Schemas of the wire contract."""

from typing import Any

from service.event import Compacted, Event, Pruned, Summarized
from service.result_row import ResultRow
from service.wire import BuildRequest, BuildResponse


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each message, by the name of its file."""
    return {
        "request": BuildRequest.model_json_schema(mode="validation"),
        "response": BuildResponse.model_json_schema(mode="serialization"),
        "context_pruned": Event[Pruned].model_json_schema(mode="serialization"),
        "context_summarized": Event[Summarized].model_json_schema(mode="serialization"),
        "context_compacted": Event[Compacted].model_json_schema(mode="serialization"),
        "result_row": ResultRow.model_json_schema(mode="validation"),
    }
