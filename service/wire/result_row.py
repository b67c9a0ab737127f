"""Rows of history on the results streams."""

from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from service.errors import InvalidRequestError
from service.wire.payload import MAX_ID, MAX_OWNER_KEY, clean_json, read_json

#: JSON Schema can't ignore case; these are the usual spellings.
_ROLE_SCHEMA: Final = {"enum": ["AI", "ai", "ASSISTANT", "assistant", "TOOL", "tool"]}


def _lower(role: object) -> object:
    return role.lower() if isinstance(role, str) else role


class ResultRow(BaseModel):
    """A row of history; a message on `llm.results` or `tools.results`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    owner_key: Annotated[str, Field(min_length=1, max_length=MAX_OWNER_KEY)]
    conversation_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None
    run_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None
    role: Annotated[
        Literal["ai", "assistant", "tool"], BeforeValidator(_lower), WithJsonSchema(_ROLE_SCHEMA)
    ]
    content: Any = None
    timestamp: Any = None
    metadata: dict[str, Any] | None = None


def read_result(payload: bytes, *, max_bytes: int) -> ResultRow:
    """Read a row from an entry of a results stream.

    Raises:
        InvalidRequestError: It isn't a row; names the location of the first problem.
    """
    try:
        return ResultRow.model_validate(clean_json(read_json(payload, max_bytes=max_bytes)))
    except ValidationError as error:
        first = error.errors()[0]
        pointer = "".join(f"/{step}" for step in first["loc"])
        raise InvalidRequestError(f"{pointer}: {first['msg']}") from error
