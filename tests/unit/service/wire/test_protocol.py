"""The wire contract: what comes in, what goes out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from service.builder import ContextBuilder
from service.errors import (
    ContextBuilderError,
    DeadlineExceededError,
    InvalidRequestError,
    UnsupportedContentError,
    UnsupportedVersionError,
)
from service.wire.documents import schemas
from service.wire.protocol import Topics
from service.wire.request import BuildRequest, RejectedError, decode
from service.wire.response import error_response, serialize_response
from tests.support import NOW, MakeBuilder

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden"

EDIT = {"type": "compact_20260112"}


def encoded(**fields: Any) -> bytes:
    """Return a short request as bytes, with these fields."""
    request = {"id": "msg_1", "owner_key": "o", "content": {"current_input": "hi"}, **fields}
    return json.dumps(request).encode()


def rejected(payload: bytes) -> RejectedError:
    """Return the error with which a payload is rejected."""
    with pytest.raises(RejectedError) as caught:
        decode(payload)
    return caught.value


def a_run(**fields: Any) -> dict[str, Any]:
    """Return a run with these fields."""
    message = {"id": "m", "run_id": "r", "owner_key": "o", "role": "HUMAN", "content": "hi"}
    return {"id": "r", "owner_key": "o", "history": [message], **fields}


def test_topics_have_the_names_of_the_source_system() -> None:
    """Orchestrators of the source system find their topics."""
    assert Topics.CONTEXT_BUILD_REQUEST.value == "context.build.request"
    assert Topics.CONTEXT_BUILD_RESPONSE.value == "context.build.response"


@pytest.mark.parametrize("name", ["request_run", "request_short", "request_chat"])
def test_golden_requests_are_read_and_match_their_schema(name: str) -> None:
    """Requests of both forms decode, and the published schema takes them."""
    text = (GOLDEN / f"{name}.json").read_text()

    assert decode(text.encode()).owner_key == "0xABC"
    Draft202012Validator(schemas()["request"]).validate(json.loads(text))


@pytest.mark.parametrize("name", ["run", "short", "invalid", "chat"])
async def test_golden_requests_get_their_golden_responses(
    name: str, make_builder: MakeBuilder
) -> None:
    """A request of a year ago is answered today, byte for byte, as it was then."""
    request = json.loads((GOLDEN / f"request_{name}.json").read_text())
    response = await make_builder().handle_build_request(request)
    answered = json.loads(serialize_response(response))

    Draft202012Validator(schemas()["response"]).validate(answered)
    assert answered == json.loads((GOLDEN / f"response_{name}.json").read_text())


async def test_a_response_is_written_as_its_form_has_it(make_builder: MakeBuilder) -> None:
    """On the bus it is byte for byte what it is over HTTP."""
    request = json.loads((GOLDEN / "request_run.json").read_text())
    response = await make_builder().handle_build_request(request)

    assert serialize_response(response) == response.model_dump_json().encode()


def test_a_request_needs_no_more_than_an_owner_and_an_input() -> None:
    """Ids are derived from the bytes, so that every worker derives the same ones."""
    payload = b'{"owner_key": "o", "content": {"current_input": "hi"}}'
    first, second = decode(payload), decode(payload)

    assert first.id.startswith("msg_")
    assert len(first.id) == len("msg_") + 32
    assert (first.id, first.run_id, first.input_id) == (second.id, second.run_id, second.input_id)
    assert decode(payload + b" ").id != first.id


def test_the_run_so_far_is_rows_with_ids() -> None:
    """Messages behind the input keep what they bring, and get ids that a retry gives them too."""
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    parts = [{"type": "thinking", "signature": "x=="}]
    history = [
        {"content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "ok", "id": "t"},
        {"role": "AI", "content": "so", "metadata": {"provider_parts": parts}},
        {"role": "AI", "content": "again", "id": "t"},
    ]
    request = decode(encoded(id="msg_1", content={"history": history}))
    first, second, third, fourth = request.run_rows

    assert (first["id"], second["id"], third["id"]) == ("in_1.1", "t", "in_1.3")
    assert (fourth["id"], fourth["content"]) == ("in_1.4", "again")
    assert first["tool_calls"] == [call]
    assert second["tool_call_id"] == "c"
    assert third["metadata"] == {"provider_parts": parts}


def test_the_run_of_a_request_is_found_where_it_is_named_once() -> None:
    """A run id in the content or in the input's row names the whole request's run."""
    assert decode(encoded(content=a_run())).run_id == "r"
    in_row = a_run(id=None)
    assert decode(encoded(content=in_row)).run_id == "r"


def test_a_request_validated_in_process_gets_its_ids_too() -> None:
    """`BuildRequest.model_validate` needs no bytes."""
    fields = {"owner_key": "o", "content": {"current_input": "hi"}}
    request = BuildRequest.model_validate(fields)

    assert request.id == BuildRequest.model_validate(dict(fields)).id
    assert request.received_at is None
    assert BuildRequest.model_validate(request) is request


@pytest.mark.parametrize(
    ("fields", "error", "pointers"),
    [
        ({"content": {"a": 1}}, InvalidRequestError, ["/content/history"]),
        ({"content": a_run(history=[])}, InvalidRequestError, ["/content/history"]),
        ({"content": None}, InvalidRequestError, ["/content"]),
        ({"content": "hi"}, InvalidRequestError, ["/content"]),
        ({"content": {"current_input": ""}}, InvalidRequestError, ["/content/current_input"]),
        ({"content": {"current_input": " \n"}}, InvalidRequestError, ["/content/current_input"]),
        ({"content": {"current_input": 7}}, InvalidRequestError, ["/content/current_input"]),
        (
            {"content": {"current_input": [{"type": "text", "text": "hi"}]}},
            UnsupportedContentError,
            ["/content/current_input"],
        ),
        (
            {"content": a_run(history=[{"content": ["hi"]}])},
            UnsupportedContentError,
            ["/content/history/0/content"],
        ),
        (
            {"content": a_run(history=[{"content": "hi", "role": "AI"}])},
            InvalidRequestError,
            ["/content/history/0/role"],
        ),
        (
            {"content": a_run(history=[{"content": "hi"}, {"owner_key": "p"}, {"run_id": "s"}])},
            InvalidRequestError,
            ["/content/history/1/owner_key", "/content/history/2/run_id"],
        ),
        (
            {"content": {"current_input": "hi", "history": []}},
            InvalidRequestError,
            ["/content/current_input"],
        ),
        ({"owner_key": "x" * 129}, InvalidRequestError, ["/owner_key"]),
        ({"schema_version": "2.0"}, UnsupportedVersionError, ["/schema_version"]),
        ({"schema_version": 1}, UnsupportedVersionError, ["/schema_version"]),
        ({"content": a_run(owner_key="p")}, InvalidRequestError, ["/content/owner_key"]),
        ({"run_id": "s", "content": a_run()}, InvalidRequestError, None),
        ({"metadata": {"timeout_ms": 0}}, InvalidRequestError, ["/metadata/timeout_ms"]),
        ({"metadata": {"deadline": "soon"}}, InvalidRequestError, ["/metadata/deadline"]),
        ({"metadata": {"reply_kind": "fax"}}, InvalidRequestError, ["/metadata/reply_kind"]),
    ],
)
def test_what_cannot_be_built_is_rejected_with_its_place(
    fields: dict[str, Any], error: type[ContextBuilderError], pointers: list[str] | None
) -> None:
    """Each refusal has a code and points at what is wrong."""
    rejection = rejected(encoded(**fields))

    assert type(rejection.error) is error
    if pointers is not None:
        assert [problem.pointer for problem in rejection.problems] == pointers


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"max_tokens": "8000"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"reserve_tokens": -1}, "reserve_tokens"),
        ({"memory_limit": -1}, "memory_limit"),
        ({"memory_tokens": 63}, "memory_tokens"),
        ({"memory_timezone": "mars"}, "memory_timezone"),
        ({"layout": "round"}, "layout"),
        ({"format": "xml"}, "format"),
        ({"scope": "all"}, "scope"),
        ({"explain": "yes"}, "explain"),
        ({"blocks": {"mood": "x"}}, "blocks"),
        ({"blocks": {"THIS_MOMENT": "x"}}, "blocks"),
        ({"blocks": {"INST": "x"}}, "blocks"),
        ({"blocks": {"MOOD": 1}}, "blocks/MOOD"),
        ({"context_management": []}, "context_management"),
        ({"context_management": {}}, "context_management/edits"),
        ({"context_management": {"edits": []}}, "context_management/edits"),
        ({"context_management": {"edits": ["a"]}}, "context_management/edits/0"),
        ({"context_management": {"edits": [{"type": ""}]}}, "context_management/edits/0/type"),
        ({"context_management": {"edits": [EDIT] * 17}}, "context_management/edits"),
        (
            {"context_management": {"edits": [{**EDIT, "a": "x" * 17_000}]}},
            "context_management/edits",
        ),
        ({"context_management": {"edits": [EDIT], "a": 1}}, "context_management/a"),
        ({"past": ["x"]}, "past/0"),
        ({"past": {}}, "past"),
        ({"identity": ""}, "identity"),
        ({"identity": " \n"}, "identity"),
        ({"identity": ["You are Ada."]}, "identity"),
    ],
)
@pytest.mark.parametrize("short", [True, False])
def test_a_bad_option_is_rejected_with_its_place(
    options: Mapping[str, Any], pointer: str, short: bool
) -> None:
    """The pointer is right in both forms of a request."""
    if short:
        content: dict[str, Any] = {"current_input": "hi", "context": options}
    else:
        content = a_run(metadata={"context": options})
    (problem,) = rejected(encoded(content=content)).problems

    assert problem.pointer == f"/content/{'' if short else 'metadata/'}context/{pointer}"


def test_edits_come_as_they_are() -> None:
    """What else is in an edit is for its provider to judge."""
    edit = {**EDIT, "trigger": {"type": "input_tokens", "value": 60_000}, "instructions": None}
    options = {"context_management": {"edits": [edit, {"type": "new"}]}}
    asked = decode(encoded(content={"current_input": "hi", "context": options})).options

    assert asked.context_management is not None
    assert asked.context_management.to_management().as_dict() == {
        "edits": [{**EDIT, "trigger": {"type": "input_tokens", "value": 60_000}}, {"type": "new"}]
    }


def test_a_request_brings_few_blocks() -> None:
    """Each costs a message, and a pass over the others where the budget is short."""
    blocks = {f"B{number}": "x" for number in range(65)}
    (problem,) = rejected(
        encoded(content={"current_input": "hi", "context": {"blocks": blocks}})
    ).problems

    assert problem.pointer == "/content/context/blocks"


@pytest.mark.parametrize("tools", [[1], ["a", {}], "a", {}])
def test_tools_are_all_names_or_all_definitions(tools: object) -> None:
    """A mixture says nothing."""
    (problem,) = rejected(encoded(content={"current_input": "hi", "tools": tools})).problems

    assert problem.pointer == "/content/tools"


def test_unknown_keys_are_named_not_refused() -> None:
    """Newer clients may say more than this version understands."""
    content = {"current_input": "hi", "mode": "x", "context": {"colour": "blue", "a/b": 1}}

    assert decode(encoded(content=content, future=1)).unknown_keys == [
        "/content/context/colour",
        "/content/context/a~1b",
        "/content/mode",
    ]


def test_null_options_are_absent_ones() -> None:
    """But for the limit of rows, where null says that there is none."""
    options = {"model": None, "layout": None, "strategy": None, "memory_limit": None}
    request = decode(encoded(content={"current_input": "hi", "context": options}))

    assert request.options.model is None
    assert "memory_limit" in request.options.model_fields_set


@pytest.mark.parametrize(
    "payload",
    [
        b"nonsense",
        b"{}",
        b'{"id": "a"}',
        b'{"id": 7, "owner_key": "o"}',
        b'{"id": "a", "owner_key": ""}',
        b'{"id": "a", "owner_key": ["o"]}',
    ],
)
def test_who_cannot_be_answered_has_no_envelope(payload: bytes) -> None:
    """Without a readable id and owner there is nobody to tell."""
    assert rejected(payload).envelope is None


def test_a_wrong_request_is_answered_where_its_sender_can_be_told() -> None:
    """The parts of the envelope that are right are used, whatever else is wrong."""
    payload = encoded(
        content=7, metadata={"correlation_id": "c", "reply_to": "context.reply.a", "timeout_ms": -1}
    )
    envelope = rejected(payload).envelope

    assert envelope is not None
    assert envelope.metadata.correlation_id == "c"
    assert envelope.metadata.reply_to == "context.reply.a"
    assert envelope.metadata.timeout_ms is None


@pytest.mark.parametrize("inner", [b"NaN", b"[" * 80 + b"]" * 80, b"[" * 900 + b"]" * 900])
def test_what_is_parsed_but_not_allowed_is_answered(inner: bytes) -> None:
    """Numbers that JSON lacks and deep nesting get an error, since their sender is known."""
    rejection = rejected(b'{"id": "a", "owner_key": "o", "content": ' + inner + b"}")

    assert rejection.error.code == "invalid_request"
    assert rejection.envelope is not None


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["id", "owner_key", "content", "history", "metadata", "context", "tools"]
                ),
                x,
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_is_decoded_or_rejected(value: object) -> None:
    """No JSON value makes the way in fail in another way."""
    try:
        decode(json.dumps(value).encode())
    except RejectedError as error:
        assert error.error.code


def test_an_error_says_what_and_where() -> None:
    """The error object carries code, title, detail, places, and whether to try again."""
    rejection = rejected(encoded(content={"current_input": ""}))
    assert rejection.envelope is not None
    body = error_response(rejection.envelope, rejection.error, NOW).model_dump(mode="json")[
        "content"
    ]

    assert body["status"] == "error"
    assert body["messages"] == body["tools"] == []
    assert body["error"]["code"] == "invalid_request"
    assert body["error"]["retryable"] is False
    assert body["error"]["errors"][0]["pointer"] == "/content/current_input"


def test_an_error_that_may_pass_has_a_new_id_each_time() -> None:
    """It must never hide the answer that comes later; a lasting error keeps its id."""
    envelope = decode(encoded()).envelope
    passing, lasting = DeadlineExceededError("late"), InvalidRequestError("bad")

    assert error_response(envelope, passing, NOW).id != error_response(envelope, passing, NOW).id
    assert error_response(envelope, lasting, NOW).id == error_response(envelope, lasting, NOW).id


async def test_a_message_that_names_nobody_raises(make_builder: MakeBuilder) -> None:
    """`handle_build_request` answers all others."""
    builder: ContextBuilder = make_builder()
    with pytest.raises(RejectedError):
        await builder.handle_build_request({"content": {}})


def test_null_is_absent_wherever_there_is_a_default() -> None:
    """Many languages write a key that is not set as null."""
    nulls = {"content": None, "role": None, "metadata": None, "timestamp": None, "run_id": None}
    message = {**nulls, "content": "hi", "id": None}
    run = {
        "history": [message],
        "status": None,
        "iteration_count": None,
        "metadata": {"context": None, "user_profile": None, "client_timezone_offset": None},
    }
    metadata = {"reply_kind": None, "timeout_ms": None, "correlation_id": None}
    request = decode(encoded(content=run, role=None, schema_version=None, metadata=metadata))
    short = {"current_input": "hi", "context": None, "timezone_offset": None}

    assert request.run.metadata.client_timezone_offset == 0
    assert request.metadata.reply_kind == "channel"
    assert decode(encoded(content=short, metadata=None)).options.model is None
    assert decode(encoded(content={**run, "metadata": None})).current_input == "hi"


def test_null_tools_are_no_tools() -> None:
    """There null says something, as for the limit of rows."""
    assert decode(encoded(content={"current_input": "hi", "tools": None})).run.tools is None
    assert decode(encoded(content={"current_input": "hi"})).run.tools == []


def test_a_place_can_be_written_whatever_its_key_is() -> None:
    """A pointer holds no lone surrogate, so that the error can be sent."""
    payload = rb'{"id": "a", "owner_key": "o", "content": {"\ud800": NaN}}'
    rejection = rejected(payload)
    assert rejection.envelope is not None

    assert error_response(rejection.envelope, rejection.error, NOW).model_dump_json().encode()
    assert rejection.problems[0].pointer == "/content/\ufffd"


def test_history_that_is_sent_along_is_bounded() -> None:
    """Millions of empty rows would fit into the bytes of a message."""
    content = {"current_input": "hi", "context": {"past": [{}] * 20_001}}
    (problem,) = rejected(encoded(content=content)).problems

    assert problem.pointer == "/content/context/past"


@pytest.mark.parametrize("strategy", [1, [1], [["none"]]])
def test_a_strategy_is_a_name_an_object_or_a_list(strategy: object) -> None:
    """Another value is refused before anything is read."""
    options = {"strategy": strategy}
    (problem,) = rejected(encoded(content={"current_input": "hi", "context": options})).problems

    assert problem.pointer == "/content/context/strategy"


@pytest.mark.parametrize("profile", [{1: 1, "b": 2}, {"a": {2: 0, "c": 1}}])
def test_an_object_that_is_no_json_is_an_invalid_request(profile: dict[Any, Any]) -> None:
    """Whatever is wrong with it, the error is one of the service's."""
    content = {"current_input": "hi", "user_profile": profile}
    with pytest.raises(InvalidRequestError):
        BuildRequest.model_validate({"owner_key": "o", "content": content})
