"""What the form of a request can't say: that its parts agree, and that it can be built."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from formatters.model import Role
from formatters.rows import read_role
from service.errors import (
    InvalidRequestError,
    Problem,
    UnsupportedContentError,
    UnsupportedVersionError,
    shown,
)
from service.payload import canonical, payload_id
from service.request_content import RUN_KEYS, SHORT_KEYS, Run

#: The major version of the wire contract that is spoken here.
MAJOR_VERSION: Final = "1"

#: What a sender may leave out although a request has it: it is derived on receipt.
DERIVED: Final = ("id", "run_id")


#: What a request and each message of its run may name, and the name of it in the content.
_NAMED: Final = {"owner_key": "owner_key", "run_id": "id"}


def leave_derived_out(schema: dict[str, Any]) -> None:
    """Let the schema of a request demand nothing that is derived."""
    schema["required"] = [name for name in schema["required"] if name not in DERIVED]


def check_version(request: Mapping[str, object]) -> None:
    """Raise `UnsupportedVersionError` unless the major version is known."""
    version = request.get("schema_version")
    if version is None:
        return
    if isinstance(version, str) and version.split(".")[0] == MAJOR_VERSION:
        return
    detail = f"version {shown(version)} is not known; {MAJOR_VERSION}.x is"
    raise UnsupportedVersionError(detail, [Problem("/schema_version", detail)])


def check_agreement(request: Mapping[str, object]) -> None:
    """Raise `InvalidRequestError` where two forms are mixed, or two names of one thing differ."""
    content = request.get("content")
    problems = [*_both_forms(content)]
    run = content if isinstance(content, dict) else {}
    history = run.get("history")
    messages = history if isinstance(history, list) else ()
    for name, name_in_run in _NAMED.items():
        said: list[tuple[tuple[str | int, ...], object]] = [
            ((name,), request.get(name)),
            (("content", name_in_run), run.get(name_in_run)),
        ]
        said += [
            (("content", "history", place, name), message.get(name))
            for place, message in enumerate(messages)
            if isinstance(message, dict)
        ]
        named = [(place, value) for place, value in said if value is not None]
        problems += [
            Problem(_pointer(place), f"differs from {name} at {_pointer(named[0][0])}")
            for place, value in named[1:]
            if value != named[0][1]
        ]
    if problems:
        raise InvalidRequestError("the request contradicts itself", problems)


def check_input(run: Run, pointer: str) -> None:
    """Raise unless the run's first message is a human's text; ``pointer`` is where it stands."""
    current = run.history[0]
    if isinstance(current.content, list):
        detail = "a list of parts is not supported as the input; send text"
        raise UnsupportedContentError(detail, [Problem(pointer, detail)])
    if not isinstance(current.content, str) or not current.content.strip():
        detail = "the current input has to be a text that says something"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if read_role(current.role) is not Role.HUMAN:
        detail = f"the current input has to be a human message, not {shown(current.role)}"
        raise InvalidRequestError(detail, [Problem("/content/history/0/role", detail)])


def with_ids(data: Mapping[str, object]) -> dict[str, object]:
    """Fill in the ids that a request may leave out; each is derived, so that a retry has it too."""
    content = data.get("content")
    run = content if isinstance(content, Mapping) else {}
    history = run.get("history")
    first = history[0] if isinstance(history, list) and history else None
    named = dict(data)
    named["id"] = request_id = named.get("id") or payload_id(canonical(data))
    spoken = first.get("run_id") if isinstance(first, Mapping) else None
    derived = f"run_{str(request_id).removeprefix('msg_')}"
    named["run_id"] = named.get("run_id") or run.get("id") or spoken or derived
    return named


def _both_forms(content: object) -> Sequence[Problem]:
    keys = set(content) if isinstance(content, Mapping) else set()
    if not (keys & SHORT_KEYS and keys & RUN_KEYS):
        return ()
    mixed = sorted(keys & SHORT_KEYS)
    return [Problem(f"/content/{key}", "belongs to the short form; this is a run") for key in mixed]


def _pointer(place: Sequence[str | int]) -> str:
    return "".join(f"/{step}" for step in place)
