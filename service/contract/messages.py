"""The messages of the AsyncAPI document, with their schemas and an example of each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from service.contract.channels import DEAD, REQUEST, RESPONSE, RESULT
from service.error_codes import CODES
from service.schemas import schemas

_CORRELATION: Final = {"location": "$message.payload#/metadata/correlation_id"}

#: An entry of the dead letter, whose values are text as all of a stream's.
_DEAD_SCHEMA: Final = {
    "title": "DeadLetter",
    "description": "What could not be answered, and why.",
    "type": "object",
    "properties": {
        "data": {"type": "string", "description": "The payload as it came."},
        "reason": {"type": "string"},
        "source": {"type": "string", "description": "The stream, without the prefix."},
        "entry": {"type": "string", "description": "Its id there."},
        "attempts": {"type": "string", "pattern": "^[0-9]+$"},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["data", "reason", "source", "entry", "attempts", "at"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of message: its schema's name, and the files of its examples."""

    schema: str
    title: str
    examples: tuple[str, ...]
    correlated: bool = True


_KINDS: Final[Mapping[str, _Kind]] = {
    REQUEST: _Kind(
        schema="request", title="Build a context", examples=("request_short", "request_run")
    ),
    RESPONSE: _Kind(
        schema="response",
        title="The context, or why there is none; `metadata.request_id` names the request",
        examples=("response_short", "response_invalid"),
    ),
    RESULT: _Kind(
        schema="result_row", title="A row of history", examples=("result_row",), correlated=False
    ),
    **{
        f"context{what.title()}": _Kind(
            schema=f"context_{what}", title=title, examples=(f"context_{what}",)
        )
        for what, title in (
            ("pruned", "Rows fell out of the context"),
            ("summarized", "A summary was stored"),
            ("compacted", "What a summary saves"),
        )
    },
    DEAD: _Kind(
        schema="dead_letter",
        title="An entry that could not be answered",
        examples=("dead_letter",),
        correlated=False,
    ),
}


def messages() -> dict[str, Any]:
    """Return the messages by their names."""
    return {name: _message(name, kind) for name, kind in _KINDS.items()}


def _message(name: str, kind: _Kind) -> dict[str, Any]:
    message = {
        "name": name,
        "title": kind.title,
        "contentType": "application/json",
        **({"correlationId": _CORRELATION} if kind.correlated else {}),
        "payload": {"$ref": f"#/components/schemas/{kind.schema}"},
        "examples": [{"name": each, "payload": example(each)} for each in kind.examples],
    }
    if name == RESPONSE:
        codes = [code for code, known in CODES.items() if known.on_the_wire]
        message["x-error-codes"] = codes
    return message


@cache
def example(name: str) -> dict[str, Any]:
    """Return an example by the name of its file."""
    text = files("service.contract.examples").joinpath(f"{name}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def message_schemas() -> dict[str, Any]:
    """Return the schemas of all messages and of their parts, which refer to one another.

    Raises:
        ValueError: Two messages have different parts of one name.
    """
    found: dict[str, Any] = {}
    for name, schema in {**schemas(), "dead_letter": _DEAD_SCHEMA}.items():
        whole = dict(schema)
        parts = {**whole.pop("$defs", {}), name: whole}
        for part, its in parts.items():
            hoisted = _hoisted(its)
            if found.setdefault(part, hoisted) != hoisted:
                raise ValueError(f"two schemas are called {part}")
    return found


def _hoisted(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema whose parts are components; AsyncAPI's own discriminator is a string."""
    if isinstance(value, list):
        return [_hoisted(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: its.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _hoisted(its)
        for key, its in value.items()
        if not (key == "discriminator" and isinstance(its, dict))
    }
