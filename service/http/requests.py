"""What the endpoints take: queries and bodies."""

from typing import Annotated, Final, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from service.wire.payload import MAX_ID
from service.wire.request import ContextOptions

#: Rows that are hidden or restored in one call.
MOST_IDS: Final = 5_000
#: Bytes of that many ids, some of them escaped.
IDS_BYTES: Final = 2_097_152

_Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
_Model = Annotated[str, Field(min_length=1, max_length=128)]


class Body(BaseModel):
    """A JSON body; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Query(BaseModel):
    """The query of a URL; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class PageQuery(Query):
    """Which builds are listed."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    before: Annotated[int, Field(ge=1, le=2**53)] | None = None


class ModelQuery(Query):
    """The model whose window counts; without it, the one of the settings."""

    model: _Model | None = None


class FormQuery(Query):
    """The form of the body."""

    format: Literal["openai", "openai_responses", "anthropic", "gemini"] = "openai"


class TimelineQuery(Query):
    """The conversation whose events are shown; without it, all of them."""

    conversation_id: _Id | None = None


#: Options of a context that can be replaced; the others stay as they were.
WHAT_IF_OPTIONS: Final = (
    "model",
    "max_tokens",
    "reserve_tokens",
    "strategy",
    "layout",
    "memory_limit",
    "memory_tokens",
)
_TYPES: Final = get_type_hints(ContextOptions, include_extras=True)
WhatIfBody: Final = create_model(
    "WhatIfBody",
    __base__=Body,
    __doc__="Options of a context to replace; the others stay as they were.",
    **{name: (_TYPES[name], None) for name in WHAT_IF_OPTIONS},  # type: ignore[call-overload] # names are data
)


class PruningTarget(Body):
    """What a history is to be pruned to."""

    model: _Model | None = None
    #: Null for four fifths of the tokens that a context holds.
    target_tokens: Annotated[int, Field(ge=0, le=100_000_000)] | None = None
    conversation_id: _Id | None = None


class IdsBody(Body):
    """Rows of the owner's history, by id."""

    ids: Annotated[list[_Id], Field(min_length=1, max_length=MOST_IDS)]
