"""Checks of a request that its models can't express: consistency of its parts, and derived ids.

All of them read the plain JSON object, before any model is made of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from formatters.model import Role
from formatters.rows import read_role
from service.errors import (
    InvalidRequestError,
    Problem,
    UnsupportedContentError,
    UnsupportedVersionError,
    shown,
)
from service.wire.payload import canonical_json, derive_id, escape_key

#: The supported major version of the wire contract.
MAJOR_VERSION: Final = "1"
#: Required fields that a sender may omit, because the receiver derives them.
DERIVED: Final = ("id", "run_id")
#: Keys that only the short form of `content` has, and keys that only a run has.
SHORT_KEYS: Final = frozenset(
    {"current_input", "timestamp_utc", "timezone_offset", "user_profile", "context"}
)
RUN_KEYS: Final = frozenset({"history", "metadata"})

#: Fields that may be repeated in the content and its messages: name in the request, name there.
_REPEATED: Final = {"owner_key": "owner_key", "run_id": "id"}


def is_short_form(content: Mapping[str, object]) -> bool:
    """Return whether a content has the short form; without a key of either form it is a run."""
    return not SHORT_KEYS.isdisjoint(content) and RUN_KEYS.isdisjoint(content)


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
    problems = [*_mixed_forms(run), *_contradictions(request, run)]
    if problems:
        raise InvalidRequestError("the request contradicts itself", problems)


def check_input(content: object, role: str, pointer: str) -> None:
    """Raise unless the current input is a text of a human; ``pointer`` is its place."""
    if isinstance(content, list):
        detail = "a list of parts is not supported as the input; send text"
        raise UnsupportedContentError(detail, [Problem(pointer, detail)])
    if not isinstance(content, str) or not content.strip():
        detail = "the current input must be a non-blank text"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if read_role(role) is not Role.HUMAN:
        detail = f"the current input must be a human message, not {shown(role)}"
        raise InvalidRequestError(detail, [Problem("/content/history/0/role", detail)])


def with_derived_ids(request: Mapping[str, object]) -> dict[str, object]:
    """Return the request with its missing ids filled in; a retry derives the same ones."""
    content = request.get("content")
    run = content if isinstance(content, Mapping) else {}
    request_id = request.get("id") or derive_id(canonical_json(request))
    run_id = request.get("run_id") or run.get("id") or _derived_run_id(run, str(request_id))
    return {**request, "id": request_id, "run_id": run_id}


def omit_derived(schema: dict[str, Any]) -> None:
    """Remove the derived fields from the required ones of a request's JSON Schema."""
    schema["required"] = [name for name in schema["required"] if name not in DERIVED]


def invalid(error: ValidationError) -> InvalidRequestError:
    """Return a validation error of pydantic as an error of ours, with JSON pointers."""
    problems = [
        Problem(_pointer_of(detail["loc"]), detail["msg"].removeprefix("Value error, "))
        for detail in error.errors()
    ]
    first = problems[0]
    return InvalidRequestError(f"{first.pointer or 'the request'}: {first.detail}", problems)


def _mixed_forms(content: Mapping[str, object]) -> Iterator[Problem]:
    if not RUN_KEYS.isdisjoint(content):
        for key in sorted(SHORT_KEYS & content.keys()):
            yield Problem(f"/content/{key}", "belongs to the short form; this content is a run")


def _contradictions(request: Mapping[str, object], run: Mapping[str, object]) -> Iterator[Problem]:
    history = run.get("history")
    messages: Sequence[object] = history if isinstance(history, list) else ()
    for name, name_in_run in _REPEATED.items():
        values = {f"/{name}": request.get(name), f"/content/{name_in_run}": run.get(name_in_run)}
        for index, message in enumerate(messages):
            value = message.get(name) if isinstance(message, dict) else None
            values[f"/content/history/{index}/{name}"] = value
        given = [(pointer, value) for pointer, value in values.items() if value is not None]
        for pointer, value in given[1:]:
            if value != given[0][1]:
                yield Problem(pointer, f"differs from {name} at {given[0][0]}")


def _derived_run_id(run: Mapping[str, Any], request_id: str) -> object:
    """Return the run id of the first message, else one derived from the request's id."""
    history = run.get("history")
    first = history[0] if isinstance(history, list) and history else None
    run_id = first.get("run_id") if isinstance(first, Mapping) else None
    return run_id or f"run_{request_id.removeprefix('msg_')}"


def _pointer_of(location: tuple[int | str, ...]) -> str:
    """Return a JSON pointer; pydantic's name of the content's form is not part of it."""
    steps = location[:1] + location[2:] if location[:1] == ("content",) else location
    return "".join(f"/{escape_key(str(step))}" for step in steps)
