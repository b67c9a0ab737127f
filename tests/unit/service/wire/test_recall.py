"""Recalls as they are read from the bus."""

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError, UnsupportedVersionError
from service.wire.recall import RecallContent, RecallRequest, decode_recall
from service.wire.request import BuildRequest, RejectedError, decode
from service.worker.handler import decode_request


def raw(content: Any, **fields: Any) -> dict[str, Any]:
    """Return a recall as a sender writes it."""
    return {"owner_key": "o", "content": content, **fields}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"query": "the key"}, RecallRequest),
        ({"ids": ["m1"], "max_tokens": 300}, RecallRequest),
        ({"around": "m1", "timestamp_utc": "2025-01-01"}, RecallRequest),
        ({"grep": "4471"}, RecallRequest),
        ({"current_input": "query"}, BuildRequest),
        ({"current_input": "hi", "query": "a key of nobody's"}, BuildRequest),
        ({"history": [{"content": "hi"}], "ids": ["m1"]}, BuildRequest),
    ],
)
def test_requests_are_distinguished_by_their_content(content: Any, kind: type) -> None:
    """What worked as a request for a context before there were recalls still does."""
    request = decode_request(json.dumps(raw(content)).encode())

    assert isinstance(request, kind)
    assert request.envelope.kind == ("recall" if kind is RecallRequest else "build")


@pytest.mark.parametrize(
    ("content", "pointer", "said"),
    [
        ({"query": "a", "grep": "b"}, "/content", "needs exactly one of query, ids, around, grep"),
        ({"lines": [1, 2]}, "/content", "needs exactly one of"),
        ({"ids": ["a", "b"], "lines": [1, 2]}, "/content", "need a single id in ids"),
        ({"ids": ["a"], "lines": [2, 1]}, "/content/lines", "first and the last"),
        ({"ids": ["a"], "lines": [0, 1]}, "/content/lines", "counted from 1"),
        ({"ids": []}, "/content/ids", "at least 1"),
        ({"ids": ["a" * 257]}, "/content/ids/0", "at most 256"),
        ({"query": " \n"}, "/content/query", "blank"),
        ({"query": "", "ids": []}, "/content/query", "at least 1"),
        ({"before": 3}, "/content", "needs exactly one of"),
        ({"grep": "x", "max_tokens": 63}, "/content/max_tokens", "greater than or equal to 64"),
        ({"around": "m1", "before": 201}, "/content/before", "less than or equal to 200"),
        ({"query": 7}, "/content/query", "valid string"),
        ({"query": "a", "page": -1}, "/content/page", "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_has_its_place(content: Any, pointer: str, said: str) -> None:
    """As with requests for contexts."""
    with pytest.raises(RejectedError) as rejected:
        decode_request(json.dumps(raw(content)).encode())

    problem = rejected.value.error.problems[0]
    assert problem.pointer == pointer
    assert said in problem.detail
    assert rejected.value.envelope
    assert rejected.value.envelope.kind == "recall"


def test_a_recall_has_the_identity_of_a_request() -> None:
    """A missing id is made of the bytes, and the fingerprint of what is requested."""
    one = decode_recall(json.dumps(raw({"query": "a"})).encode())
    again = decode_recall(json.dumps(raw({"query": "a"})).encode())
    other = decode_recall(json.dumps(raw({"query": "b"}, id="m")).encode())

    assert one.id == again.id
    assert one.id.startswith("msg_")
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert RecallRequest.model_validate(raw({"query": "b"})).fingerprint == other.fingerprint


def test_unknown_keys_are_warned_of() -> None:
    """They are ignored, with what may have been meant."""
    request = RecallRequest.model_validate(raw({"query": "a", "max_token": 3, "limit": None}))
    (warning,) = request.warnings

    assert (warning.code, warning.pointer) == ("unknown_key", "/content/max_token")
    assert "max_tokens" in warning.detail


def test_a_slip_beside_the_content_is_warned_of() -> None:
    """A misspelt conversation would fetch the messages of all."""
    content = {"query": "tea", "conversation_id": "c"}
    given = {"owner_key": "ana", "conversationId": "c", "content": content}
    warnings = RecallRequest.model_validate(given).warnings

    assert [(each.pointer, each.detail) for each in warnings] == [
        ("/conversationId", "is unknown and ignored; did you mean conversation_id?"),
        ("/content/conversation_id", "is ignored here; it belongs beside owner_key"),
    ]


def test_objects_that_are_no_recalls_are_refused() -> None:
    """With errors of ours only."""
    with pytest.raises(UnsupportedVersionError):
        RecallRequest.model_validate(raw({"query": "a"}, schema_version="2.0"))
    with pytest.raises(InvalidRequestError):
        RecallRequest.model_validate(7)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidRequestError, match="not JSON"):
        RecallRequest.model_validate(raw({"query": "a"}, timestamp=endless))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRequestError, match=r"^nested deeper than 64 levels$"):
        RecallRequest.model_validate(raw({"query": "a"}, timestamp=deep))


def test_empty_values_next_to_the_one_that_is_meant_are_left_out() -> None:
    """As models fill in every argument of a tool."""
    content = {"query": "soup", "ids": [], "around": "", "grep": ""}
    request = decode_recall(json.dumps(raw(content)).encode())

    assert request.content.query == "soup"
    assert (request.content.ids, request.content.around, request.content.grep) == (None,) * 3


@pytest.mark.parametrize("empty", ["", [], None])
@pytest.mark.parametrize(
    "key", ["lines", "older_than", "page", "before", "after", "with_ids", "around"]
)
def test_no_empty_argument_refuses_a_recall(key: str, empty: object) -> None:
    """Of those that the tool has."""
    request = RecallRequest.model_validate(raw({"query": "soup", key: empty}))
    assert request.content == RecallContent(query="soup")


def test_zeros_that_mean_nothing_are_left_out() -> None:
    """No message before another one is a number of messages."""
    zeros = {"ids": [""], "lines": [0, 0], "page": 0, "before": 0}
    content = RecallRequest.model_validate(raw({"around": "m1", **zeros})).content
    assert content == RecallContent(around="m1", before=0)


@pytest.mark.parametrize("key", ["current_input", "history"])
def test_a_recall_that_is_a_request_for_a_context_is_refused(key: str) -> None:
    """Where only recalls are expected: the worker would build a context of it."""
    with pytest.raises(RejectedError) as caught:
        decode_recall(json.dumps(raw({"query": "a", key: "b"})).encode())

    said = "is no recall; send it to context.build.request, or over HTTP to POST /v1/build"
    assert said in str(caught.value.error)


def test_a_recall_in_place_of_a_request_for_a_context_is_sent_to_its_place() -> None:
    """Where only requests for contexts are expected, as at `POST /v1/build`."""
    with pytest.raises(RejectedError) as caught:
        decode(json.dumps(raw({"query": "key"})).encode())

    said = "a recall goes to context.recall.request, or over HTTP to POST /v1/recall"
    assert said in str(caught.value.error)


def test_a_slip_in_what_a_recall_needs_is_named() -> None:
    """It isn't taken for a request for a context."""
    with pytest.raises(RejectedError, match="grep; did you mean query") as caught:
        decode_recall(json.dumps(raw({"query_": "a"})).encode())

    assert [problem.pointer for problem in caught.value.error.problems] == ["/content"]
