"""The OpenAPI document, generated from the table of endpoints."""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final

from pydantic import TypeAdapter

from service.audit.reports import BUILD_ID
from service.http.endpoint import OWNER_HEADER, Endpoint
from service.http.error_responses import STATUSES, ErrorAnswer
from service.http.requests import Body
from service.wire.payload import MAX_OWNER_KEY
from service.wire.request import BuildRequest
from service.wire.response import BuildResponse

_REFERENCE: Final = "#/components/schemas/{model}"
_ERROR: Final = {"$ref": "#/components/schemas/ErrorAnswer"}
_JSON: Final = "application/json"
#: Schemas by the name of an operation, and ``answer``, ``body`` or ``error``.
Names = dict[tuple[str, str], dict[str, Any]]

#: Statuses of every endpoint besides 200.
_ALWAYS: Final = (400, 401, 403, 421, 429)
#: Statuses of endpoints that take a body.
_WITH_BODY: Final = (408, 413, 415)


def document(endpoints: Sequence[Endpoint[Any]]) -> dict[str, Any]:
    """Return the document, in OpenAPI 3.1."""
    names, schemas = _schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "context-builder",
            "version": version("context-builder"),
            "description": "Builds contexts, shows builds, prunes histories; one owner per call.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # {}: without a configured token, none is needed
        "security": [{"token": []}, {}],
    }


def _schemas(endpoints: Sequence[Endpoint[Any]]) -> tuple[Names, dict[str, Any]]:
    """Return the schemas of all answers and bodies, and the components that they refer to."""
    types: list[tuple[tuple[str, str], Any, TypeAdapter[Any]]] = [
        (("", "error"), "serialization", TypeAdapter(ErrorAnswer))
    ]
    for endpoint in endpoints:
        answer = TypeAdapter(endpoint.answer)
        types.append(((endpoint.name, "answer"), "serialization", answer))
        if endpoint.body is not None:
            types.append(((endpoint.name, "body"), "validation", TypeAdapter(_body(endpoint))))
    names, definitions = TypeAdapter.json_schemas(types, ref_template=_REFERENCE)
    return {key: schema for (key, _), schema in names.items()}, definitions["$defs"]


def _body(endpoint: Endpoint[Any]) -> type:
    kind = endpoint.body
    return kind if kind is not None and issubclass(kind, Body) else BuildRequest


def _operation(endpoint: Endpoint[Any], names: Names) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "parameters": [*_parameters(endpoint)],
        "responses": {
            "200": _response("The answer.", names[endpoint.name, "answer"], endpoint),
            **{str(status): _failure(status, endpoint) for status in _statuses(endpoint)},
        },
    }
    if endpoint.body is not None:
        schema = names[endpoint.name, "body"]
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return operation


def _parameters(endpoint: Endpoint[Any]) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", endpoint.path):
        schema = {"type": "string", "pattern": f"^{BUILD_ID.pattern}$"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if endpoint.owned:
        about = f"The owner of the data: percent-encoded UTF-8, at most {MAX_OWNER_KEY} characters."
        yield _header(OWNER_HEADER, about, required=True)
    for name, about in endpoint.headers.items():
        yield _header(name, about, required=False)
    for name, schema in endpoint.query.model_json_schema()["properties"].items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _header(name: str, about: str, *, required: bool) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": about,
        "schema": schema,
    }


def _statuses(endpoint: Endpoint[Any]) -> list[int]:
    with_body = _WITH_BODY if endpoint.body is not None else ()
    return sorted({*_ALWAYS, *with_body, *endpoint.statuses})


def _failure(status: int, endpoint: Endpoint[Any]) -> dict[str, Any]:
    codes = ", ".join(f"`{code}`" for code, value in STATUSES.items() if value == status)
    schema: dict[str, Any] = _ERROR
    if endpoint.answer is BuildResponse:
        schema = {"anyOf": [{"$ref": "#/components/schemas/BuildResponse"}, _ERROR]}
    return {"description": codes or "Unavailable.", "content": {_JSON: {"schema": schema}}}


def _response(about: str, schema: dict[str, Any], endpoint: Endpoint[Any]) -> dict[str, Any]:
    return {"description": about, "content": {endpoint.media_type: {"schema": schema}}}
