"""Rows of history as other programs send them: on the streams of the recorder, and over HTTP."""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from formatters.model import Role, Row
from formatters.rows import as_mapping, read_content, read_role
from formatters.times import parse_timestamp
from service.errors import InvalidRequestError, did_you_mean
from service.wire.payload import clean_json, read_json
from service.wire.validation import Id, OwnerKey, check_ids, explain_misnamed_content

#: JSON Schema can't ignore case; these are the usual spellings.
_ANSWER_ROLES: Final = {"enum": ["AI", "ai", "ASSISTANT", "assistant", "TOOL", "tool"]}
_ROLES: Final = {"enum": ["HUMAN", "human", "USER", "user", *_ANSWER_ROLES["enum"]]}


def _lower(role: object) -> object:
    return role.lower() if isinstance(role, str) else role


def check_time(value: object) -> object:
    """Return a value if it is a time or None; raises `ValueError`."""
    if value is not None and parse_timestamp(value) is None:
        raise ValueError("must be a time in ISO 8601")
    return value


def _check_parts(content: object) -> object:
    # the union's own errors are one for each member, at pointers that end with its name
    if content is None or isinstance(content, str | list):
        return content
    raise ValueError("must be a text or a list of parts")


class HistoryRow(BaseModel, extra="allow", frozen=True):
    """A row of history to import; a chat message with an id is one, too."""

    id: Id
    conversation_id: Id | None = None
    run_id: Id | None = None
    role: Annotated[
        Literal["human", "user", "ai", "assistant", "tool"],
        BeforeValidator(_lower),
        WithJsonSchema(_ROLES),
    ]
    content: Annotated[str | list[Any] | None, BeforeValidator(_check_parts)] = None
    timestamp: Annotated[Any, AfterValidator(check_time)] = None
    metadata: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_its_content(self) -> Self:
        fields = {**(self.model_extra or {}), "metadata": self.metadata}
        detail = None if "content" in self.model_fields_set else explain_misnamed_content(fields)
        if detail:
            raise ValueError(detail)
        return self

    def differs(self, stored: Row, conversation_id: str | None = None) -> bool:
        """Return whether a stored row with this id says something else, or elsewhere.

        ``conversation_id`` is the row's if it names none. What a row leaves out doesn't differ;
        times aren't compared, as the stored one may be the time of receipt.
        """
        known, given = as_mapping(stored.get("metadata")), self.metadata or {}
        places = {"conversation_id": self.conversation_id or conversation_id, "run_id": self.run_id}
        return (
            (stored.get("content") or "") != (self.content or "")
            or read_role(stored.get("role")) is not read_role(self.role)
            or any(place and stored.get(name) != place for name, place in places.items())
            or any(known.get(name) != value for name, value in given.items())
        )


def find_conflicts(
    rows: Iterable[HistoryRow], stored: Iterable[Row], conversation_id: str | None = None
) -> list[str]:
    """Return the ids of the rows that differ from the stored row of this id."""
    by_id = {str(row["id"]): row for row in stored}
    return [
        row.id for row in rows if row.id in by_id and row.differs(by_id[row.id], conversation_id)
    ]


class ImportRow(HistoryRow):
    """A row of history of any role; a message on `history.import`."""

    owner_key: OwnerKey


def _check_content(content: object) -> object:
    if content is None or isinstance(content, str | list) or read_content(content):
        return content
    raise ValueError("must be a text, a list of parts, or an object with content or result")


class ResultRow(ImportRow):
    """A row of history; a message on `llm.results` or `tools.results`.

    Its content may be an object, as services of NEXUS send it: `content` and `tool_calls` of a
    model, `result`, `status`, `tool_name` and `call_id` of a tool.
    """

    role: Annotated[
        Literal["ai", "assistant", "tool"], BeforeValidator(_lower), WithJsonSchema(_ANSWER_ROLES)
    ]
    content: Annotated[Any, AfterValidator(_check_content)] = None
    timestamp: Any = None

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the text in its content, and all else of that in its metadata."""
        content, given = as_mapping(row.get("content")), row.get("metadata") or {}
        if "result" in content:
            keys = {"tool_name": "name", "call_id": "tool_call_id", "status": "status"}
            text: object = _as_text(content["result"])
        elif "content" in content:
            keys, text = {"tool_calls": "tool_calls"}, content["content"]
        else:
            return row
        if not isinstance(given, dict):
            return row
        more = {keys[key]: content[key] for key in keys if content.get(key)}
        return {**row, "content": text, "metadata": {**more, **given}}


def _as_text(result: object) -> str:
    if result is None or isinstance(result, str):
        return result or ""
    return json.dumps(result, ensure_ascii=False)


AnyRow = TypeVar("AnyRow", bound=ImportRow)


def read_row(model: type[AnyRow], payload: bytes, *, max_bytes: int) -> AnyRow:
    """Read a row from an entry of a stream.

    Raises:
        InvalidRequestError: It isn't a row; names the location of the first problem.
    """
    raw = read_json(payload, max_bytes=max_bytes)
    check_ids(raw)
    try:
        return model.model_validate(clean_json(raw))
    except ValidationError as error:
        # without the value that `invalid` quotes: it gets into logs and dead letters
        first = error.errors()[0]
        pointer = "".join(f"/{step}" for step in first["loc"])
        detail = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            detail = "is required"
        if first["type"] == "literal_error":  # of the role
            detail += did_you_mean(str(first["input"]), re.findall("'(.+?)'", detail))
            if read_role(first["input"]) is Role.HUMAN:
                detail += "; history.import takes rows of all roles"
        raise InvalidRequestError(f"{pointer or 'the row'}: {detail}") from error
