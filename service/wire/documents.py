"""The wire contract as documents: JSON Schemas, an AsyncAPI document, and all error codes.

``ctxb schema`` prints them, and ``make reference`` writes them to ``docs/schemas``.
"""

import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from service.errors import CODES
from service.wire.events import Compacted, Event, Pruned, Summarized
from service.wire.history_row import ImportRow, ResultRow
from service.wire.recall import RecallRequest, RecallResponse
from service.wire.request import BuildRequest
from service.wire.response import BuildResponse


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each message, by the name of its file."""
    return {
        "request": BuildRequest.model_json_schema(mode="validation"),
        "response": BuildResponse.model_json_schema(mode="serialization"),
        "recall_request": RecallRequest.model_json_schema(mode="validation"),
        "recall_response": RecallResponse.model_json_schema(mode="serialization"),
        "context_pruned": Event[Pruned].model_json_schema(mode="serialization"),
        "context_summarized": Event[Summarized].model_json_schema(mode="serialization"),
        "context_compacted": Event[Compacted].model_json_schema(mode="serialization"),
        "result_row": ResultRow.model_json_schema(mode="validation"),
        "import_row": ImportRow.model_json_schema(mode="validation"),
    }


def error_registry() -> dict[str, Any]:
    """Return all error codes, with their causes and remedies."""
    return {"errors": [{"code": code} | asdict(entry) for code, entry in CODES.items()]}


def asyncapi_document() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document; its application is a worker of this service."""
    document: dict[str, Any] = yaml.safe_load(_read("asyncapi.yml"))
    components = document["components"]
    components["schemas"] = message_schemas(components["schemas"])
    messages = components["messages"]
    for message in messages.values():
        message["examples"] = [
            {**named, "payload": example(named["name"])} for named in message["examples"]
        ]
    on_the_wire = [code for code, error in CODES.items() if error.on_the_wire]
    for response in ("buildResponse", "recallResponse"):
        messages[response]["x-error-codes"] = on_the_wire
    return document


@cache
def example(name: str) -> dict[str, Any]:
    """Return an example message by the name of its file."""
    message: dict[str, Any] = json.loads(_read("examples", f"{name}.json"))
    return message


def message_schemas(others: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of all messages, ``others`` included, and of their parts, as components.

    Raises:
        ValueError: Two messages have different parts of the same name.
    """
    components: dict[str, Any] = {}
    for name, schema in {**schemas(), **others}.items():
        message = dict(schema)
        parts = {**message.pop("$defs", {}), name: message}
        for part_name, part in parts.items():
            component = _as_component(part)
            if components.setdefault(part_name, component) != component:
                raise ValueError(f"two schemas have the name {part_name}")
    return components


def _as_component(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Point references at components, and drop discriminators, which AsyncAPI wants as strings."""
    if isinstance(value, list):
        return [_as_component(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item.replace("#/$defs/", "#/components/schemas/")
        if key == "$ref"
        else _as_component(item)
        for key, item in value.items()
        if not (key == "discriminator" and isinstance(item, dict))
    }


def _read(*path: str) -> str:
    return files(__package__).joinpath(*path).read_text("utf-8")
