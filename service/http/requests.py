"""What routes take, and small answers: models for what strangers send, dataclasses for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_type_hints

from pydantic import Field, create_model

from service.http.route import Body, Query
from service.http.views import Content, Summary
from service.wire.payload import MAX_ID
from service.wire.request import ContextOptions

#: Rows that are marked in one go.
MOST_IDS: Final = 5_000

#: Bytes of so many ids, some of them escaped.
IDS_BYTES: Final = 2_097_152

_Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What answers."""

    version: str
    #: Of the wire.
    schema_version: str
    #: Whether words are shown, and whether contexts can be asked for.
    content: Content
    build: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Builds of an owner, newest first."""

    builds: Sequence[Summary]
    #: To be given as ``before`` for those that came earlier; null where there are none.
    next: int | None


class PageQuery(Query):
    """Which builds are listed."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    before: Annotated[int, Field(ge=1, le=2**53)] | None = None


class ModelQuery(Query):
    """Whose window it is; without a model, that of the settings."""

    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class FormQuery(Query):
    """Which form the body is in."""

    format: Literal["openai", "openai_responses", "anthropic", "gemini"] = "openai"


class TimelineQuery(Query):
    """Whose events are told: of one conversation, or of the history of all of them."""

    conversation_id: _Id | None = None


#: Options of a context that may be others; what is left out stays as it was.
WISHES: Final = (
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
    __doc__="Options of a context that are to be others; what is left out stays as it was.",
    **{name: (_TYPES[name], None) for name in WISHES},  # type: ignore[call-overload] # names are data
)


class AimBody(Body):
    """What a history is to be pruned to."""

    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    target_tokens: Annotated[int, Field(ge=0, le=100_000_000)] | None = None
    conversation_id: _Id | None = None


class IdsBody(Body):
    """Rows of the owner's history, by their ids."""

    ids: Annotated[list[_Id], Field(min_length=1, max_length=MOST_IDS)]
