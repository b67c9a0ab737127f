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
from service.wire.payload import canonical, payload_id
from service.wire.request import RUN_KEYS, SHORT_KEYS, Run

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
        said = [request.get(name), run.get(name_in_run)]
        said += [each.get(name) if isinstance(each, dict) else None for each in messages]
        places = [place for place, value in enumerate(said) if value is not None]
        problems += [
            Problem(_pointer(name, place), f"differs from {name} at {_pointer(name, places[0])}")
            for place in places[1:]
            if said[place] != said[places[0]]
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
    named = dict(data)
    named["id"] = request_id = named.get("id") or payload_id(canonical(data))
    named["run_id"] = named.get("run_id") or run.get("id") or _derived(run, str(request_id))
    return named


def _derived(run: Mapping[str, Any], request_id: str) -> object:
    """Return the run that the input names, else one that is named for the request."""
    history = run.get("history")
    first = history[0] if isinstance(history, list) and history else None
    spoken = first.get("run_id") if isinstance(first, Mapping) else None
    return spoken or f"run_{request_id.removeprefix('msg_')}"


def _both_forms(content: object) -> Sequence[Problem]:
    if not isinstance(content, dict):
        return ()
    if SHORT_KEYS.isdisjoint(content) or RUN_KEYS.isdisjoint(content):
        return ()
    mixed = sorted(SHORT_KEYS & content.keys())
    return [Problem(f"/content/{key}", "belongs to the short form; this is a run") for key in mixed]


def _pointer(name: str, place: int) -> str:
    """Return where something is named: in the request, in the content, or in a message."""
    if place == 0:
        return f"/{name}"
    return f"/content/{_NAMED[name]}" if place == 1 else f"/content/history/{place - 2}/{name}"
