"""Checks of a request that its models can't express: consistency of its parts, and derived ids.

Most of them read the plain JSON object, before any model is made of it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from formatters.model import Role
from formatters.rows import MAX_DEPTH, ROLES, as_mapping, fix_surrogates, read_role
from service.errors import (
    InvalidRequestError,
    Problem,
    UnsupportedContentError,
    UnsupportedVersionError,
    did_you_mean,
    escape_key,
    not_among,
    shown,
)
from service.wire.payload import MAX_ID, MAX_OWNER_KEY, canonical_json, derive_id, digest
from service.wire.protocol import Topics

OwnerKey = Annotated[str, Field(min_length=1, max_length=MAX_OWNER_KEY)]
#: The id of a message, a run, a conversation or a row.
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
ModelName = Annotated[str, Field(min_length=1, max_length=128)]
#: The supported major version of the wire contract.
MAJOR_VERSION: Final = "1"
#: Required fields that a sender may omit, because the receiver derives them.
DERIVED: Final = ("id", "run_id")
#: Keys that only the short form of `content` has, and keys that only a run has.
SHORT_KEYS: Final = frozenset(
    {"current_input", "timestamp_utc", "timezone_offset", "user_profile", "context"}
)
RUN_KEYS: Final = frozenset({"history", "metadata"})
#: Keys that make a run of a content without any of these, even if they are misspelt.
_LIKE_A_RUN: Final = ("history", "messages")
#: Keys that only a recall has: it needs one of the first four.
RECALL_MODES: Final = ("query", "ids", "around", "grep")
RECALL_KEYS: Final = frozenset(
    {*RECALL_MODES, "before", "after", "lines", "page", "older_than", "with_ids", "exclude_build"}
)
#: Where messages belong, for senders that put them elsewhere or omit them.
INPUT_KEYS: Final = (
    "the input is `current_input`, a text, or the first message of `history`; earlier messages"
    " belong into `past` of `context`"
)
#: Where each kind of request belongs.
BUILD_PLACE: Final = f"{Topics.CONTEXT_BUILD_REQUEST}, or over HTTP to POST /v1/build"
RECALL_PLACE: Final = f"{Topics.CONTEXT_RECALL_REQUEST}, or over HTTP to POST /v1/recall"
#: Where a system prompt belongs, for senders that put it elsewhere.
SYSTEM_KEYS: Final = (
    "a system prompt has its place in prompts.identity_file, or in the option identity where"
    " prompts.allow_request_identity is set"
)

#: Fields that may be repeated in the content and its messages: name in the request, name there.
_REPEATED: Final = {"owner_key": "owner_key", "run_id": "id"}
#: The roles that an input can have.
_HUMAN: Final = [name for name, role in ROLES.items() if role is Role.HUMAN]
#: Keys of a request, its run and its messages whose values identify something.
_IDS: Final = ("owner_key", "id", "run_id", "conversation_id")


def is_short_form(content: Mapping[str, object]) -> bool:
    """Return whether a content has the short form; so has one without a key of either form."""
    if _given(RUN_KEYS, content):
        return False
    slips = (
        did_you_mean(str(key), _LIKE_A_RUN, cutoff=0.8)
        for key in islice(content, MAX_COMPARED_KEYS)
    )
    return not SHORT_KEYS.isdisjoint(content) or not any(slips)


def is_recall(content: object) -> bool:
    """Return whether a content requests earlier messages, not a context."""
    if not isinstance(content, dict) or RECALL_KEYS.isdisjoint(content):
        return False
    return not is_build(content)


def is_build(content: object) -> bool:
    """Return whether a content has an input to build a context for."""
    return isinstance(content, dict) and bool(_given(("current_input", "history"), content))


def _given(keys: Iterable[str], content: Mapping[str, object]) -> list[str]:
    """Return which of the keys a content has; one with null counts as absent."""
    return [key for key in keys if content.get(key) is not None]


def check_ids(message: Mapping[str, Any]) -> None:
    """Raise `InvalidRequestError` if an id has a lone surrogate: repaired, two could become one."""
    problems = [
        Problem(f"{pointer}/{key}", "must not have a lone surrogate")
        for pointer, item in _objects(message)
        for key in _IDS
        if has_lone_surrogate(item.get(key))
    ]
    if problems:
        raise InvalidRequestError(f"{problems[0].pointer}: {problems[0].detail}", problems)


def has_lone_surrogate(value: object) -> bool:
    """Return whether a value is a string with half of a surrogate pair."""
    return isinstance(value, str) and fix_surrogates(value) != value


def check_version(request: Mapping[str, object]) -> None:
    """Raise `UnsupportedVersionError` unless the major version is supported."""
    version = request.get("schema_version")
    if version is None:
        return
    if isinstance(version, str) and version.split(".")[0] == MAJOR_VERSION:
        return
    detail = f"version {shown(version)} is not supported; use {MAJOR_VERSION}.x"
    raise UnsupportedVersionError(detail, [Problem("/schema_version", detail)])


def check_consistency(request: Mapping[str, object]) -> None:
    """Raise `InvalidRequestError` if both forms are mixed or repeated fields differ."""
    content = request.get("content")
    run = content if isinstance(content, dict) else {}
    mixed = sorted(_given(SHORT_KEYS, run)) if _given(RUN_KEYS, run) else []
    detail = (
        f"belongs to the short form, but {' and '.join(_given(sorted(RUN_KEYS), run))} makes this"
        " content a run: move earlier messages from history to past of context, or this key into"
        " the run, whose first message is the input, and whose metadata has all else"
    )
    problems = [Problem(f"/content/{key}", detail) for key in mixed]
    problems += _contradictions(request)
    if problems:
        first = f"{problems[0].pointer}: {problems[0].detail}"
        raise InvalidRequestError(f"the request contradicts itself: {first}", problems)


def check_input(content: object, role: str, pointer: str) -> None:
    """Raise unless the current input is a text of a human; ``pointer`` is its place."""
    if isinstance(content, list):
        detail = "a list of parts is not supported as the input; send text"
        raise UnsupportedContentError(detail, [Problem(pointer, detail)])
    if not isinstance(content, str) or not content.strip():
        detail = "the current input must be a non-blank text"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if read_role(role) is not Role.HUMAN:
        meant = did_you_mean(role, _HUMAN) or f"; use {' or '.join(_HUMAN)}"
        detail = f"the current input must be a human message, not {shown(role)}{meant}"
        raise InvalidRequestError(detail, [Problem("/content/history/0/role", detail)])


def with_derived_ids(request: Mapping[str, object], *, nameless: bool = False) -> dict[str, object]:
    """Return the request with its missing ids filled in; a retry derives the same ones.

    The ids of the run and of the input's row are hashes of the request's id, conversation and
    input, so that they differ from given ones and from those of any other request. If the sender
    gave no id (``nameless``), the request's own is a hash already. ``derived_name``, the hash, is
    empty if neither of them is missing.
    """
    run = as_mapping(request.get("content"))
    request_id = str(request.get("id") or derive_id(canonical_json(request)))
    message = as_mapping(next(iter(_messages(run)), None))
    run_id = request.get("run_id") or run.get("id") or message.get("run_id")
    if run_id and message.get("id"):
        name = ""
    elif nameless or not request.get("id"):
        name = request_id.removeprefix("msg_")
    else:
        text = run.get("current_input") or message.get("content")
        name = digest(request_id, str(request.get("conversation_id") or ""), str(text))
    return {
        **request,
        "id": request.get("id") or request_id,
        "run_id": run_id or f"run_{name}",
        "derived_name": name,
    }


#: Keys of an object that are compared with known ones: of more, the first.
MAX_COMPARED_KEYS: Final = 50
#: Keys at which other programs have what a message says.
_OTHER_CONTENT: Final = frozenset({"text", "parts", "message", "body"})


def explain_misnamed_content(row: Mapping[str, object]) -> str | None:
    """Return what is said of a row that has its content at another key; None if it doesn't."""
    calls = row.get("tool_calls") or as_mapping(row.get("metadata")).get("tool_calls")
    if "content" in row or calls:
        return None
    for key in map(str, islice(row, MAX_COMPARED_KEYS)):
        if key in _OTHER_CONTENT or did_you_mean(key, ("content",), cutoff=0.8):
            return f"has no content, but {shown(key)}: write its text at content"
    return None


def clean_parts(holder: dict[str, Any], pointer: str) -> None:
    """Replace ``provider_parts`` by what `decode` would read: they are sent as they came.

    Raises:
        InvalidRequestError: They hold values that JSON doesn't have.
    """
    if holder.get("provider_parts") is None:
        return
    try:
        text = json.dumps(holder["provider_parts"], ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        problem = Problem(f"{pointer}/provider_parts", f"cannot be written as JSON: {error}")
        raise InvalidRequestError(f"{problem.pointer}: {problem.detail}", [problem]) from error
    holder["provider_parts"] = json.loads(fix_surrogates(text))


def omit_derived(schema: dict[str, Any]) -> None:
    """Remove the derived fields from the required ones of a request's JSON Schema."""
    schema["required"] = [name for name in schema["required"] if name not in DERIVED]


def invalid(
    error: ValidationError,
    known: Iterable[str] = (),
    derived_from: Mapping[str, object] | None = None,
) -> InvalidRequestError:
    """Return a validation error of pydantic as an error of ours, with JSON pointers.

    ``known`` are the keys among which one for an unknown key is suggested. ``derived_from`` is the
    request as it was sent, if ids were derived from it.
    """
    problems = [
        Problem(_pointer_of(detail["loc"], derived_from), _detail_of(detail, known))
        for detail in error.errors()
    ]
    problems = [*dict.fromkeys(problems)]  # a derived id repeats the error of its source
    first = problems[0]
    return InvalidRequestError(f"{first.pointer or 'the request'}: {first.detail}", problems)


@contextmanager
def invalid_errors(derived_from: Mapping[str, object] | None = None) -> Iterator[None]:
    """Raise what the validation of an object raises as `InvalidRequestError`."""
    try:
        yield
    except ValidationError as error:
        raise invalid(error, derived_from=derived_from) from error
    except RecursionError as error:
        raise InvalidRequestError(f"nested deeper than {MAX_DEPTH} levels") from error
    except (TypeError, ValueError) as error:
        detail = "not JSON: it has a key or value that JSON doesn't have; write that as a text"
        raise InvalidRequestError(f"{detail} ({error})") from error


def _contradictions(request: Mapping[str, object]) -> Iterator[Problem]:
    objects = _objects(request)
    for name, name_in_run in _REPEATED.items():
        given = [
            (pointer, key, item[key])
            for pointer, item in objects
            if item.get(key := name_in_run if pointer == "/content" else name) is not None
        ]
        for pointer, key, value in given[1:]:
            first_pointer, first_key, first = given[0]
            if value != first:
                detail = f"differs from {name} at {first_pointer}/{first_key}"
                yield Problem(f"{pointer}/{key}", detail)


def _objects(request: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a request, its content and its messages, each with its JSON pointer."""
    content = request.get("content")
    run = content if isinstance(content, dict) else {}
    objects = [("", request), ("/content", run)]
    for index, message in enumerate(_messages(run)):
        if isinstance(message, dict):
            objects.append((f"/content/history/{index}", message))
    return objects


def _messages(run: Mapping[str, object]) -> Sequence[object]:
    history = run.get("history")
    return history if isinstance(history, list) else ()


def _detail_of(detail: ErrorDetails, known: Iterable[str]) -> str:
    last, message = detail["loc"][-1:], detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = f"is unknown{did_you_mean(str(last[0]), known)}"
    if detail["type"] == "literal_error":
        message += not_among(detail["input"], message)
    if detail["type"] == "missing":
        message = f"is required{_explain_slip(str(last[0]), detail['input'])}"
    elif detail["type"] in _NO_OBJECT:
        message = "must be an object"
    if _OF_INPUT.isdisjoint(last):
        return message
    meant = f"a recall goes to {RECALL_PLACE}" if is_recall(detail["input"]) else INPUT_KEYS
    return f"{message}; {meant}"


#: Types of errors whose messages name classes of Python.
_NO_OBJECT: Final = frozenset({"dict_type", "model_type"})

#: Steps to what a content has to have, and to the content in either form.
_OF_INPUT: Final = frozenset({"history", "current_input", "run", "short"})


def _explain_slip(name: str, given: object) -> str:
    """Return the key that was written for a missing one, if it is there."""
    beside = SHORT_KEYS.intersection(as_mapping(given)) if name == "content" else ()
    if beside:
        return f", and {min(beside)} belongs into it"
    # with metadata a content is a run, which has to have a history
    names = (name, "current_input") if name == "history" else (name,)
    for key in map(str, islice(as_mapping(given), MAX_COMPARED_KEYS)):
        if name.startswith(f"{key}_") or did_you_mean(key, names, cutoff=0.8):
            return f", but the key is {shown(key)}"
    return ""


def _pointer_of(location: tuple[int | str, ...], derived_from: Mapping[str, object] | None) -> str:
    """Return a JSON pointer; pydantic's name of the content's form is not part of it."""
    if location == ("run_id",) and derived_from and not derived_from.get("run_id"):
        in_run = as_mapping(derived_from.get("content")).get("id")
        return "/content/id" if in_run else "/content/history/0/run_id"
    has_form = location[:2] in (("content", "short"), ("content", "run"))
    steps = location[:1] + location[2:] if has_form else location
    return "".join(f"/{escape_key(str(step))}" for step in steps)
