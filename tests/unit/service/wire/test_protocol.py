"""The wire contract: what comes in, what goes out."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.builder import ContextBuilder
from service.config.settings import OWN_KEYS
from service.errors import (
    ContextBuilderError,
    DeadlineExceededError,
    InvalidRequestError,
    UnsupportedContentError,
    UnsupportedVersionError,
)
from service.wire.history_row import ResultRow, read_row
from service.wire.payload import MAX_ID, derive_id
from service.wire.protocol import Topics
from service.wire.request import BuildRequest, RejectedError, decode, decode_again
from service.wire.response import BuildResponse, error_response, serialize
from service.wire.validation import is_recall
from tests.published import published
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


_FIRST_RUN_ID = "/content/history/0/run_id"


def test_topics_have_the_names_of_the_source_system() -> None:
    """Orchestrators of the source system find their topics."""
    assert Topics.CONTEXT_BUILD_REQUEST.value == "context.build.request"
    assert Topics.CONTEXT_BUILD_RESPONSE.value == "context.build.response"


def test_what_was_read_once_is_read_again_whatever_its_size() -> None:
    """`bus.max_payload_bytes` may have allowed more than the default, and escapes add bytes."""
    body = json.loads(encoded(content={"current_input": "\u65e5" * 2_000_000}))

    assert decode_again(body, received_at=NOW).current_input == body["content"]["current_input"]


@pytest.mark.parametrize("name", ["request_run", "request_short", "request_chat"])
def test_golden_requests_are_read_and_match_their_schema(name: str) -> None:
    """Requests of both forms decode, and the published schema takes them."""
    text = (GOLDEN / f"{name}.json").read_text()

    assert decode(text.encode()).owner_key == "0xABC"
    published("request").validate(json.loads(text))


@pytest.mark.parametrize("name", ["run", "short", "invalid", "chat"])
async def test_golden_requests_get_their_golden_responses(
    name: str, make_builder: MakeBuilder
) -> None:
    """A request of a year ago is answered today, byte for byte, as it was then."""
    request = json.loads((GOLDEN / f"request_{name}.json").read_text())
    response = await make_builder().handle_build_request(request)
    answered = json.loads(serialize(response))

    published("response").validate(answered)
    assert answered == json.loads((GOLDEN / f"response_{name}.json").read_text())


async def test_a_response_is_written_as_its_form_has_it(make_builder: MakeBuilder) -> None:
    """On the bus it is byte for byte what it is over HTTP."""
    request = json.loads((GOLDEN / "request_run.json").read_text())
    response = await make_builder().handle_build_request(request)

    assert serialize(response) == response.model_dump_json().encode()


def test_a_request_needs_no_more_than_an_owner_and_an_input() -> None:
    """Ids are derived from the bytes, so that every worker derives the same ones."""
    payload = b'{"owner_key": "o", "content": {"current_input": "hi"}}'
    first, second = decode(payload), decode(payload)

    assert first.id.startswith("msg_")
    assert len(first.id) == len("msg_") + 32
    assert (first.id, first.run_id, first.input_id) == (second.id, second.run_id, second.input_id)
    assert decode(payload + b" ").id != first.id


def test_the_run_so_far_is_rows_with_ids() -> None:
    """Messages after the input keep what they bring, and get ids that a retry gives them too."""
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

    own = request.input_id
    assert (first["id"], second["id"], third["id"]) == (f"{own}.1", "t", f"{own}.3")
    assert (fourth["id"], fourth["content"]) == (f"{own}.4", "again")
    assert first["tool_calls"] == [call]
    assert second["tool_call_id"] == "c"
    assert third["metadata"] == {"provider_parts": parts}


def test_no_message_of_a_run_replaces_another() -> None:
    """A derived id differs from those that the sender gave, which may have been derived before."""
    history = [
        {"id": "q", "content": "hi"},
        {"id": "q.2", "role": "AI", "content": "first"},
        {"role": "AI", "content": "second"},
        {"id": "q.2_", "role": "AI", "content": "third"},
    ]
    request = decode(encoded(id="msg_1", content={"history": history}))

    assert [(row["id"], row["content"]) for row in request.run_rows] == [
        ("q.2", "first"),
        ("q.2__", "second"),
        ("q.2_", "third"),
    ]
    assert request.derived_ids == {"q.2__"}


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
        ({"content": {"a": 1}}, InvalidRequestError, ["/content/current_input"]),
        ({"content": {}}, InvalidRequestError, ["/content/current_input"]),
        ({"content": {"current_inptu": "x"}}, InvalidRequestError, ["/content/current_input"]),
        ({"content": {"historyy": []}}, InvalidRequestError, ["/content/history"]),
        ({"content": {"metadata": {}}}, InvalidRequestError, ["/content/history"]),
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


def test_a_value_that_is_none_of_a_list_has_a_suggestion() -> None:
    """And is shown, shortened."""
    slip, long = ({"current_input": "hi", "context": {"layout": x}} for x in ("chatt", "x" * 999))

    (problem,) = rejected(encoded(content=slip)).problems
    assert problem.detail == "Input should be 'tagged' or 'chat', not 'chatt'; did you mean chat?"
    (problem,) = rejected(encoded(content=long)).problems
    assert len(problem.detail) < 140


def test_unknown_keys_are_named_not_refused() -> None:
    """Newer clients may say more than this version understands."""
    content = {"current_input": "hi", "mode": "x", "context": {"colour": "blue", "a/b": 1}}

    assert ignored(content) == {
        "/content/context/colour": "is unknown and ignored",
        "/content/context/a~1b": "is unknown and ignored",
        "/content/mode": "is unknown and ignored",
    }


def ignored(content: dict[str, Any]) -> dict[str, str]:
    """Return what is said about each key of a content that is ignored."""
    request = decode(encoded(content=content, future=1))
    return {problem.pointer: problem.detail for problem in request.ignored_keys}


def test_a_mistyped_key_is_distinguished_from_the_one_that_was_meant() -> None:
    """Of the context, and of a short content; a key of megabytes isn't compared for minutes."""
    context = {"max_token": 1, "Layuot": "chat", "x" * 2_000_000: 1}
    said = ignored({"current_input": "hi", "time_zone_offset": 1, "context": context})

    assert [detail.removeprefix("is unknown and ignored") for detail in said.values()] == [
        "; did you mean max_tokens?",
        "; did you mean layout?",
        "",
        "; did you mean timezone_offset?",
    ]


@pytest.mark.parametrize("is_run", [False, True])
@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("messages", "earlier messages belong into `past` of `context`"),
        ("history", "earlier messages belong into `past` of `context`"),
        ("token_budget", "did you mean max_tokens of context?"),
        ("system", "prompts.identity_file, or in the option identity"),
        ("system_prompt", "prompts.identity_file, or in the option identity"),
        ("conversation_id", "it belongs beside owner_key"),
    ],
)
def test_names_of_other_apis_in_the_context_are_told_ours(
    key: str, right: str, is_run: bool
) -> None:
    """No spelling is close enough to show what was meant."""
    context = {"context": {key: "x"}}
    content = a_run(id=None, metadata=context) if is_run else {"current_input": "hi", **context}
    ((pointer, detail),) = ignored(content).items()

    assert pointer == f"/content/{'metadata/' if is_run else ''}context/{key}"
    assert right in detail


def test_names_of_other_apis_beside_the_input_are_told_ours() -> None:
    """Of options, with the place where they belong."""
    said = ignored({"current_input": "hi", "token_budget": 900, "system_prompt": "Be brief."})

    assert said["/content/token_budget"].endswith("; did you mean max_tokens of context?")
    assert "prompts.identity_file" in said["/content/system_prompt"]


def test_an_option_outside_of_the_context_is_sent_there() -> None:
    """In both forms; a run may have a key of that name where its context has it too."""
    here = "is ignored here; it belongs into /content/metadata/context"
    metadata = {"model": "mine", "layout": "chat", "context": {"model": "gpt-5"}}

    assert ignored({"current_input": "hi", "max_tokens": 900}) == {
        "/content/max_tokens": "is ignored here; it belongs into /content/context"
    }
    assert ignored(a_run(id=None, strategy="none", model="mine", metadata=metadata)) == {
        "/content/metadata/layout": here,
        "/content/strategy": here,
    }
    assert ignored(a_run(id=None, mine=1, metadata={"mine": 1})) == {}


def test_no_reply_may_go_to_a_topic_of_the_service() -> None:
    """Not even one that is added."""
    assert all(topic.startswith(OWN_KEYS) for topic in Topics)


def test_a_profile_in_another_shape_is_told_its_own() -> None:
    """In both forms; one with the part that is read may have more."""
    profile = {"friends_profile": "likes tea"}
    belongs = "is ignored here; it belongs into prompt_overrides of user_profile"

    assert ignored({"current_input": "hi", "user_profile": profile}) == {
        "/content/user_profile/friends_profile": belongs
    }
    assert ignored(a_run(metadata={"user_profile": {"learning": "x"}})) == {
        "/content/metadata/user_profile/learning": belongs
    }
    for more, is_named in (({"tone": "x"}, True), (None, True), (profile, False)):
        both = {**profile, "prompt_overrides": more}
        assert bool(ignored({"current_input": "hi", "user_profile": both})) is is_named
    assert ignored({"current_input": "hi", "user_profile": {"friends_profile": None}}) == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"conversationId": "c"}, {"/conversationId": "did you mean conversation_id?"}),
        ({"metadata": {"timeout": 1}}, {"/metadata/timeout": "did you mean timeout_ms?"}),
        ({"reply_to": "r", "reply_kind": "list"}, {"/reply_to": "/metadata", "/reply_kind": "/"}),
        ({"context": {"max_tokens": 1}}, {"/context": "it belongs into /content"}),
        ({"metadata": {"max_tokens": 1}}, {"/metadata/max_tokens": "/content/context"}),
        ({"metadata": {"conversation_id": "c"}}, {"/metadata/conversation_id": "owner_key"}),
        ({"content": {"current_input": "hi", "conversation_id": "c"}}, {"/content/conv": "beside"}),
        ({"conversation_id": "c", "metadata": {"conversation_id": "c"}}, {}),
        ({"reply_to": "r", "metadata": {"reply_to": "r"}}, {}),
        ({"source": "gateway", "uid": 1, "metadata": {"region": "eu", "a/b": 1}}, {}),
    ],
)
def test_a_key_beside_the_content_that_looks_known_is_named(
    given: dict[str, Any], expected: dict[str, str]
) -> None:
    """Unlike the sender's own keys: a slip in ``conversation_id`` would mix conversations."""
    request = {"owner_key": "ana", "content": {"current_input": "hi"}, **given}
    said = BuildRequest.model_validate(request).ignored_keys

    found = sorted(said, key=lambda problem: problem.pointer)
    wanted = sorted(expected.items())
    assert len(found) == len(wanted)
    for problem, (pointer, detail) in zip(found, wanted, strict=True):
        assert problem.pointer.startswith(pointer)
        assert detail in problem.detail


@pytest.mark.parametrize(
    ("given", "pointer", "detail"),
    [
        ({"ownerKey": "ana"}, "/owner_key", "is required, but the key is 'ownerKey'"),
        ({"owner": "ana"}, "/owner_key", "is required, but the key is 'owner'"),
        ({}, "/owner_key", "is required"),
        ({"owner_key": "ana", "content": "hi"}, "/content", "must be an object; the input is "),
    ],
)
def test_what_is_missing_is_named_with_what_is_there(
    given: dict[str, Any], pointer: str, detail: str
) -> None:
    """A slip in a required key is an error that names it."""
    request = {"content": {"current_input": "hi"}, **given}
    with pytest.raises(InvalidRequestError) as caught:
        BuildRequest.model_validate(request)
    (problem,) = caught.value.problems
    assert problem.pointer == pointer
    assert problem.detail.startswith(detail)


def test_a_run_has_its_conversation_beside_it() -> None:
    """Within the run it is ignored, which is said unless it is in its place, too."""
    run = {"history": [{"content": "hi"}], "conversation_id": "c"}
    request = {"owner_key": "ana", "content": run}
    (problem,) = BuildRequest.model_validate(request).ignored_keys

    assert problem.pointer == "/content/conversation_id"
    assert problem.detail == "is ignored here; it belongs beside owner_key"
    assert not [*BuildRequest.model_validate({**request, "conversation_id": "c"}).ignored_keys]


def test_messages_are_sent_to_the_input_and_the_history() -> None:
    """Alone they are refused; next to the input they are ignored."""
    messages = [{"role": "user", "content": "hi"}]
    (run,) = rejected(encoded(content={"messages": messages})).problems
    (short,) = rejected(encoded(content={"messages": messages, "context": {}})).problems
    said = ignored({"current_input": "hi", "messages": messages})
    said |= ignored(a_run(id=None, messages=messages))

    assert (run.pointer, short.pointer) == ("/content/history", "/content/current_input")
    assert list(said) == ["/content/messages"]
    for detail in (run.detail, short.detail, *said.values()):
        assert "`current_input`" in detail
        assert "`history`" in detail


def test_a_mistyped_role_of_the_input_is_distinguished_from_the_one_that_was_meant() -> None:
    """The role is the first thing that a sender of another API gets wrong."""
    content = a_run(history=[{"role": "humen", "content": "hi"}], id=None)

    assert rejected(encoded(content=content)).problems[0].detail == (
        "the current input must be a human message, not 'humen'; did you mean human?"
    )


def test_a_wrong_role_of_the_input_gets_the_roles_that_an_input_can_have() -> None:
    """Another known role is wrong as well, so it isn't suggested."""
    content = a_run(history=[{"role": "assistant", "content": "hi"}], id=None)

    assert rejected(encoded(content=content)).problems[0].detail == (
        "the current input must be a human message, not 'assistant'; use human or user"
    )


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (a_run(id="r" * 300, history=[{"content": "hi"}]), "/content/id"),
        (a_run(id=5, history=[{"content": "hi"}]), "/content/id"),
        (a_run(id=None, history=[{"content": "hi", "run_id": "r" * 300}]), _FIRST_RUN_ID),
        (a_run(id=None, history=[{"content": "hi", "run_id": ["a"]}]), _FIRST_RUN_ID),
    ],
)
def test_an_error_in_the_id_of_the_run_has_the_place_where_it_was_sent(
    content: dict[str, Any], pointer: str
) -> None:
    """Once each: a sender finds no error at a key that it didn't write."""
    (in_content,) = rejected(encoded(content=content)).problems
    (beside,) = rejected(encoded(run_id="r" * 300)).problems

    assert (in_content.pointer, beside.pointer) == (pointer, "/run_id")


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (a_run(history=[{"content": "hi"}, 3]), "/content/history/1"),
        (a_run(metadata=3), "/content/metadata"),
        (a_run(metadata={"user_profile": 3}), "/content/metadata/user_profile"),
        ({"current_input": "hi", "context": 3}, "/content/context"),
        (3, "/content"),
    ],
)
def test_what_must_be_an_object_is_called_so(content: object, pointer: str) -> None:
    """A client of another language knows neither dictionaries nor classes."""
    (problem,) = rejected(encoded(content=content)).problems

    assert problem.pointer == pointer
    assert problem.detail.partition(";")[0] == "must be an object"


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
    """Without a readable id and owner there is no recipient."""
    assert rejected(payload).envelope is None


@pytest.mark.parametrize("named", [{"id": "msg_1"}, {"id": 7}, {}, {"owner_key": "\ud800"}])
def test_without_an_owner_the_place_of_the_reply_is_enough(named: dict[str, Any]) -> None:
    """A request without its owner gets the error at its own reply topic."""
    metadata = {"reply_to": "context.reply.a", "correlation_id": "c"}
    payload = json.dumps({"content": {}, "metadata": metadata, **named}).encode()
    envelope = rejected(payload).envelope

    assert envelope is not None
    assert not envelope.identified
    assert envelope.owner_key == ""
    assert envelope.id == named.get("id") or envelope.id == derive_id(payload)
    assert envelope.metadata.correlation_id == "c"
    assert serialize(error_response(BuildResponse, envelope, InvalidRequestError(), NOW))


def test_a_wrong_request_is_answered_where_its_sender_can_be_reached() -> None:
    """The parts of the envelope that are right are used, whatever else is wrong."""
    payload = encoded(
        content=7, metadata={"correlation_id": "c", "reply_to": "context.reply.a", "timeout_ms": -1}
    )
    envelope = rejected(payload).envelope

    assert envelope is not None
    assert envelope.metadata.correlation_id == "c"
    assert envelope.metadata.reply_to == "context.reply.a"
    assert envelope.metadata.timeout_ms is None


@pytest.mark.parametrize(
    "inner",
    [
        *(b"NaN", b"[" * 80 + b"]" * 80, b"[" * 900 + b"]" * 900),
        b'{"current_input": "hi", "context": {"past": [{"metadata": {"x": 1e400}}]}}',
    ],
)
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
    body = error_response(BuildResponse, rejection.envelope, rejection.error, NOW).model_dump(
        mode="json"
    )["content"]

    assert body["status"] == "error"
    assert body["messages"] == body["tools"] == []
    assert body["error"]["code"] == "invalid_request"
    assert body["error"]["retryable"] is False
    assert body["error"]["errors"][0]["pointer"] == "/content/current_input"


def test_an_error_that_may_pass_has_a_new_id_each_time() -> None:
    """It must never hide the answer that comes later; a lasting error keeps its id."""
    envelope = decode(encoded()).envelope
    passing, lasting = DeadlineExceededError("late"), InvalidRequestError("bad")
    ids = [error_response(BuildResponse, envelope, passing, NOW).id for _ in range(2)]
    same = [error_response(BuildResponse, envelope, lasting, NOW).id for _ in range(2)]

    assert ids[0] != ids[1]
    assert same[0] == same[1]


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


@pytest.mark.parametrize("content", [{"current_input": "hi", "history": None}, None])
def test_null_keys_of_the_other_form_are_absent(content: dict[str, Any] | None) -> None:
    """They don't make a request one of both forms."""
    request = decode(encoded(content=content or {**a_run(), "current_input": None}))
    assert request.run.history[0].content == "hi"
    assert is_recall({"query": "hi", "history": None})


def test_null_tools_are_no_tools() -> None:
    """There null says something, as for the limit of rows."""
    assert decode(encoded(content={"current_input": "hi", "tools": None})).run.tools is None
    assert decode(encoded(content={"current_input": "hi"})).run.tools == []


def test_a_place_can_be_written_whatever_its_key_is() -> None:
    """A pointer holds no lone surrogate, so that the error can be sent."""
    payload = rb'{"id": "a", "owner_key": "o", "content": {"\ud800": NaN}}'
    rejection = rejected(payload)
    assert rejection.envelope is not None

    assert serialize(error_response(BuildResponse, rejection.envelope, rejection.error, NOW))
    assert rejection.problems[0].pointer == "/content/\ufffd"


@pytest.mark.parametrize("key", ["owner_key", "id", "run_id", "conversation_id"])
def test_ids_with_a_lone_surrogate_are_refused(key: str) -> None:
    """Two of them would be repaired to the same: owners would be merged."""
    for value in ("sur\ud800", "sur\udfff"):
        rejection = rejected(encoded(**{key: value}))
        assert [problem.pointer for problem in rejection.problems] == [f"/{key}"]
        assert isinstance(rejection.error, InvalidRequestError)
        # no response can be addressed to an owner or an id that was repaired
        assert (rejection.envelope is None) == (key in {"owner_key", "id"})
        if rejection.envelope:
            assert serialize(
                error_response(BuildResponse, rejection.envelope, rejection.error, NOW)
            )


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (a_run(id="\ud800"), "/content/id"),
        (a_run(owner_key="\ud800"), "/content/owner_key"),
        (a_run(history=[{"id": "\ud800", "content": "hi"}]), "/content/history/0/id"),
        (a_run(history=[{"run_id": "\udfff", "content": "hi"}]), "/content/history/0/run_id"),
    ],
)
def test_ids_of_runs_with_a_lone_surrogate_are_refused(content: object, pointer: str) -> None:
    """The run's id and those of its messages become ids of the request and of rows."""
    (problem,) = rejected(encoded(content=content)).problems
    assert problem.pointer == pointer


def test_ids_with_whole_pairs_are_accepted() -> None:
    """JSON may escape a character beyond the basic plane as two surrogates."""
    content = {"current_input": "\ud800"}
    request = decode(encoded(owner_key="\N{KEY}", id="\N{KEY}", content=content))
    assert (request.owner_key, request.id) == ("\N{KEY}", "\N{KEY}")
    assert request.current_input == "\ufffd"


@pytest.mark.parametrize("key", ["owner_key", "id", "run_id", "conversation_id"])
def test_ids_of_result_rows_with_a_lone_surrogate_are_refused(key: str) -> None:
    """The row would be recorded for another owner, or in place of another row."""
    row = {"id": "a", "owner_key": "o", "role": "AI", "content": "\ud800", key: "sur\ud800"}
    with pytest.raises(InvalidRequestError, match=f"/{key}: must not have a lone surrogate"):
        read_row(ResultRow, json.dumps(row).encode(), max_bytes=10_000)


@pytest.mark.parametrize("key", ["owner_key", "id", "role"])
def test_a_missing_key_of_a_row_is_reported_like_that_of_a_request(key: str) -> None:
    """In the words of requests, not in those of pydantic."""
    row = {"id": "a", "owner_key": "o", "role": "AI", "content": "Hi"}
    del row[key]
    with pytest.raises(InvalidRequestError, match=f"^/{key}: is required$"):
        read_row(ResultRow, json.dumps(row).encode(), max_bytes=10_000)


CALLS = [{"id": "c1", "function": {"name": "find", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("role", "content", "text", "metadata"),
    [
        ("AI", {"content": "Paris.", "tool_calls": None}, "Paris.", {"a": 1}),
        ("AI", {"content": None, "tool_calls": CALLS}, None, {"tool_calls": CALLS, "a": 1}),
        (
            "TOOL",
            {"result": "18 °C", "status": "success", "tool_name": "find", "call_id": "c1"},
            "18 °C",
            {"name": "find", "tool_call_id": "c1", "status": "success", "a": 1},
        ),
        ("TOOL", {"result": {"é": [1]}, "call_id": ""}, '{"é": [1]}', {"a": 1}),
        ("TOOL", {"result": None}, "", {"a": 1}),
        ("AI", {"type": "text", "text": "hi"}, {"type": "text", "text": "hi"}, {"a": 1}),
    ],
)
def test_results_of_the_source_systems_services_are_rows(
    role: str, content: object, text: object, metadata: object
) -> None:
    """Their text is the row's, and what is next to it is metadata, unless the row has its own."""
    row = {"id": "a", "owner_key": "o", "role": role, "content": content, "metadata": {"a": 1}}
    read = read_row(ResultRow, json.dumps(row).encode(), max_bytes=10_000)

    assert (read.content, read.metadata) == (text, metadata)
    named = {**row, "metadata": {"name": "search", "tool_calls": []}}
    read = read_row(ResultRow, json.dumps(named).encode(), max_bytes=10_000)
    assert {**(read.metadata or {}), **named["metadata"]} == read.metadata  # type: ignore[dict-item] # a dict, as above


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": {"event": "text_chunk", "payload": {"chunk": "a"}}},
        {"content": {}},
        {"content": 5},
        {"content": {"content": {"text": 1}}},
        {"content": {"result": "x"}, "metadata": "m"},
        {"role": "SYSTEM", "content": {"content": "Error", "tool_calls": None}},
    ],
)
def test_what_cannot_be_read_is_no_result(wrong: dict[str, Any]) -> None:
    """It would be a blank row."""
    row = {"id": "a", "owner_key": "o", "role": "AI", **wrong}
    with pytest.raises(InvalidRequestError, match=r"^/(content|metadata|role): "):
        read_row(ResultRow, json.dumps(row).encode(), max_bytes=10_000)


@pytest.mark.parametrize("length", [252, 253, 254, 256])
@pytest.mark.parametrize("given", [{}, {"run_id": "r" * 256}])
def test_the_longest_ids_are_accepted(length: int, given: dict[str, Any]) -> None:
    """The ids that are derived from them are no longer than others, and differ like them."""
    requests = [decode(encoded(id="x" * (length - 1) + last, **given)) for last in "ab"]
    derived = [(request.run_id, request.input_id) for request in requests]

    assert all(len(name) <= MAX_ID for names in derived for name in names)
    assert derived[0][1] != derived[1][1]
    assert (derived[0][0] != derived[1][0]) == (not given)


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


def with_parts(place: str, parts: object) -> dict[str, Any]:
    """Return a request with provider parts in one of the places that may have some."""
    kept: dict[str, Any] = {"provider_parts": parts}
    row = {"role": "AI", "content": "hey", **(kept if place.endswith("0") else {"metadata": kept})}
    content: dict[str, Any] = {"current_input": "hi", "context": {"past": [row]}}
    if place.startswith("history"):
        content = {"history": [{"content": "hi"}, {**row, "id": "a"}]}
    return {"owner_key": "o", "content": content}


PLACES = {
    "past 0": "/content/context/past/0/provider_parts",
    "past": "/content/context/past/0/metadata/provider_parts",
    "history 0": "/content/history/1/provider_parts",
    "history": "/content/history/1/metadata/provider_parts",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [b"x", {1}, float("nan"), {"a": [object()]}])
def test_parts_for_a_provider_that_are_no_json_are_refused(place: str, value: object) -> None:
    """They are sent as they came, so a build could only fail later."""
    with pytest.raises(InvalidRequestError) as caught:
        BuildRequest.model_validate(with_parts(place, [{"type": "thinking", "thinking": value}]))

    assert [problem.pointer for problem in caught.value.problems] == [PLACES[place]]


@pytest.mark.parametrize("place", PLACES)
def test_parts_for_a_provider_are_read_as_from_the_bus(place: str) -> None:
    """Lone surrogates are replaced, in keys too, and pairs are joined; the caller's stay."""
    own = with_parts(place, [{"a\ud800": "\ud83d", "b": ("\ud83d\ude00",)}])
    before = copy.deepcopy(own)
    request = BuildRequest.model_validate(own)
    (row,) = request.options.past or request.run_rows
    read = decode(json.dumps(own).encode())
    (sent,) = read.options.past or read.run_rows

    assert row.get("provider_parts") == sent.get("provider_parts")
    assert row.get("metadata") == sent.get("metadata")
    assert "\ud83d" not in str(row)
    assert own == before
