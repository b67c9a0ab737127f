"""The OpenAPI document, generated from the table of endpoints."""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from inspect import getdoc
from typing import Any, Final

from pydantic import TypeAdapter

from service.audit.reports import BUILD_ID
from service.http.endpoint import OWNER_HEADER, Endpoint
from service.http.error_responses import STATUSES, ErrorAnswer
from service.wire.payload import MAX_OWNER_KEY
from service.wire.recall import RecallResponse
from service.wire.response import BuildResponse

_REFERENCE: Final = "#/components/schemas/{model}"
_ERROR: Final = {"$ref": "#/components/schemas/ErrorAnswer"}
_JSON: Final = "application/json"
#: Schemas by the name of an operation, and ``answer``, ``body`` or ``error``.
Names = dict[tuple[str, str], dict[str, Any]]

#: Statuses of every endpoint besides 200.
_ALWAYS: Final = (400, 401, 403, 421, 429, 503)
#: Statuses of endpoints that take a body.
_WITH_BODY: Final = (408, 413, 415)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the document, in OpenAPI 3.1."""
    names, schemas = _schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "context-builder",
            "version": version("ctxb"),
            "description": "Builds contexts, shows builds, changes histories; one owner per call.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # {}: without a configured token, none is needed
        "security": [{"token": []}, {}],
    }


def _schemas(endpoints: Sequence[Endpoint]) -> tuple[Names, dict[str, Any]]:
    """Return the schemas of all answers and bodies, and the components that they refer to."""
    types: list[tuple[tuple[str, str], Any, TypeAdapter[Any]]] = [
        (("", "error"), "serialization", TypeAdapter(ErrorAnswer))
    ]
    for endpoint in endpoints:
        types.append(((endpoint.name, "answer"), "serialization", endpoint.adapter))
        if endpoint.body is not None:
            types.append(((endpoint.name, "body"), "validation", TypeAdapter(endpoint.body)))
    names, definitions = TypeAdapter.json_schemas(types, ref_template=_REFERENCE)
    return {key: schema for (key, _), schema in names.items()}, definitions["$defs"]


def _operation(endpoint: Endpoint, names: Names) -> dict[str, Any]:
    statuses = {*_ALWAYS, *(_WITH_BODY if endpoint.body else ()), *endpoint.statuses}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.name.replace("_", " ").capitalize(),
        # empty under `python -OO`, which has no docstrings
        "description": (getdoc(endpoint.handle) or "").partition("\n")[0],
        "parameters": [*_parameters(endpoint)],
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {endpoint.media_type: {"schema": names[endpoint.name, "answer"]}},
            },
            **{str(status): _failure(status, endpoint) for status in sorted(statuses)},
        },
    }
    if endpoint.body is not None:
        schema = names[endpoint.name, "body"]
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return operation


def _parameters(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", endpoint.path):
        schema = {"type": "string", "pattern": f"^{BUILD_ID.pattern}$"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    about = f"The owner of the data: percent-encoded UTF-8, at most {MAX_OWNER_KEY} characters."
    headers = {OWNER_HEADER: about} if endpoint.owned else {}
    for name, about in {**headers, **endpoint.headers}.items():
        yield {
            "name": name,
            "in": "header",
            "required": name == OWNER_HEADER,
            "description": about,
            "schema": {"type": "string", "minLength": 1},
        }
    for name, schema in endpoint.query.model_json_schema()["properties"].items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _failure(status: int, endpoint: Endpoint) -> dict[str, Any]:
    codes = ", ".join(f"`{code}`" for code, value in STATUSES.items() if value == status)
    schema: dict[str, Any] = _ERROR
    if endpoint.answer in (BuildResponse, RecallResponse):
        name = endpoint.answer.__name__
        schema = {"anyOf": [{"$ref": f"#/components/schemas/{name}"}, _ERROR]}
    return {"description": codes or "Unavailable.", "content": {_JSON: {"schema": schema}}}
