"""The AsyncAPI document: valid, whole, and true of the code."""

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import BaseModel

from service.errors import InvalidRequestError
from service.ports.bus import ReplyKind
from service.wire.documents import asyncapi_document, example
from service.wire.events import Compacted, Event, Pruned, Summarized
from service.wire.history_row import ResultRow, read_row
from service.wire.protocol import (
    DEAD_MAX_LENGTH,
    REPLY_MAX_LENGTH,
    REQUESTS_GROUP,
    RESULTS_GROUP,
    SCHEMA_VERSION,
    Topics,
)
from service.wire.recall import RecallResponse, decode_recall
from service.wire.request import decode
from service.wire.response import BuildResponse, error_response

ROOT = Path(__file__).parents[4]


@cache
def official() -> Draft7Validator:
    """Return what checks a document against the official schema of AsyncAPI 3.0."""
    packed = (ROOT / "tests" / "vendor" / "asyncapi-3.0.0.json.gz").read_bytes()
    return Draft7Validator(json.loads(gzip.decompress(packed)))


#: The document, which takes a while to make; no test changes it.
document = cache(asyncapi_document)


def references(value: Any) -> Iterator[str]:
    """Yield the target of every reference, but for those in examples of messages."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for key, each in value.items():
            if key != "examples":
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def resolved(described: Any, reference: str) -> Any:
    """Return what a reference within the document leads to."""
    assert reference.startswith("#/")
    for step in reference[2:].split("/"):
        described = described[step]
    return described


def test_the_official_schema_takes_the_document() -> None:
    """A tool that knows AsyncAPI 3.0 can read it."""
    described = json.loads(json.dumps(document()))
    assert [error.message for error in official().iter_errors(described)] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda described: described.pop("info"),
        lambda described: described.update(asyncapi="2.6.0"),
        lambda described: described["operations"]["build"].update(action="publish"),
        lambda described: described["operations"]["build"]["reply"]["address"].pop("location"),
        lambda described: described["channels"]["reply"].update(place="x"),
        lambda described: described["components"]["messages"]["buildRequest"].update(
            correlationId={"location": "the payload"}
        ),
    ],
)
def test_the_official_schema_refuses_what_is_wrong(spoil: Callable[[Any], Any]) -> None:
    """The check would notice."""
    described = json.loads(json.dumps(document()))
    spoil(described)
    assert not official().is_valid(described)


def test_every_reference_leads_somewhere() -> None:
    """Within the document: it is alone."""
    described = document()
    found = set(references(described))

    assert len(found) > 40
    for reference in found:
        assert isinstance(resolved(described, reference), dict)


def test_every_topic_has_a_channel() -> None:
    """And no channel has a topic that there isn't; one has the address that a request names."""
    described = document()
    addresses = [each["address"] for each in described["channels"].values()]

    assert {address for address in addresses if address} == set(Topics)
    assert addresses.count(None) == 1


def test_groups_and_lengths_are_those_of_the_code() -> None:
    """The document repeats the version, consumer groups and lengths of streams."""
    described = document()
    redis = {name: channel["x-redis"] for name, channel in described["channels"].items()}

    assert described["info"]["version"] == SCHEMA_VERSION
    assert redis["requestStream"]["group"] == redis["recallStream"]["group"] == REQUESTS_GROUP
    assert redis["modelResults"]["group"] == redis["toolResults"]["group"] == RESULTS_GROUP
    assert redis["reply"]["replyKinds"]["stream"]["maxlen"] == REPLY_MAX_LENGTH
    assert redis["deadLetters"]["maxlen"] == DEAD_MAX_LENGTH


def test_every_channel_is_used() -> None:
    """By an operation of the worker, or as the place of its replies."""
    described = document()
    operations = described["operations"].values()
    used = {each["channel"]["$ref"] for each in operations}
    used |= {each["reply"]["channel"]["$ref"] for each in operations if "reply" in each}

    assert used == {f"#/channels/{name}" for name in described["channels"]}


def test_requests_have_replies_where_they_say() -> None:
    """Address, kinds and correlation are keys that a request has."""
    described = document()
    metadata = described["components"]["schemas"]["RequestMetadata"]["properties"]
    messages = described["components"]["messages"]
    asked = [each for each in described["operations"].values() if "reply" in each]

    assert len(asked) == 4
    for operation in asked:
        assert operation["reply"]["address"]["location"].endswith("#/metadata/reply_to")
    for request in (messages["buildRequest"], messages["recallRequest"]):
        assert request["correlationId"]["location"].endswith("#/metadata/correlation_id")
    assert {"reply_to", "reply_kind", "correlation_id"} <= set(metadata)
    kinds = set(described["channels"]["reply"]["x-redis"]["replyKinds"])
    assert kinds == set(metadata["reply_kind"]["enum"]) == set(ReplyKind.__args__)  # type: ignore[attr-defined]


def test_examples_match_their_schemas() -> None:
    """Every message has one, and the schema in the document takes it."""
    described = document()
    for message in described["components"]["messages"].values():
        schema = {**message["payload"], "components": described["components"]}
        assert message["examples"]
        for each in message["examples"]:
            Draft202012Validator(schema).validate(each["payload"])


def test_examples_are_read_by_the_code() -> None:
    """As a worker or a client reads them."""
    events: list[type[BaseModel]] = [Event[Pruned], Event[Summarized], Event[Compacted]]
    names = ["context_pruned", "context_summarized", "context_compacted"]

    for model, name in zip(events, names, strict=True):
        model.model_validate_json(json.dumps(example(name)))
    for name in ("response_short", "response_invalid"):
        BuildResponse.model_validate(example(name))
    for name in ("request_short", "request_run"):
        assert decode(json.dumps(example(name)).encode()).owner_key == "0xABC"
    assert decode_recall(json.dumps(example("recall_request")).encode()).content.ids is None
    RecallResponse.model_validate(example("recall_response"))
    assert (
        read_row(ResultRow, json.dumps(example("result_row")).encode(), max_bytes=10_000).id == "a1"
    )


def test_the_codes_of_a_response_are_listed() -> None:
    """With the code of any error that a worker answers with."""
    response = document()["components"]["messages"]["buildResponse"]
    request = decode(json.dumps(example("request_run")).encode())
    answer = error_response(
        BuildResponse, request.envelope, InvalidRequestError(), request.run.history[0].timestamp
    )

    assert answer.content.status == "error"
    assert answer.content.error.code in response["x-error-codes"]
    assert "no_answer" not in response["x-error-codes"]
