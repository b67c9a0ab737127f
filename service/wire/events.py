"""Events as they stand on the bus: what is told of an owner's context, beside the responses."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Content = TypeVar("Content")

EVENT_VERSION: Final = "1.0"


class Pruned(BaseModel):
    """Rows of history fell out of their owner's context for the first time; `context.pruned`."""

    model_config = ConfigDict(frozen=True)

    #: Rows of history in the context with those that fell out, and without them.
    original: int
    final: int
    #: How many fell out, and their ids, oldest first.
    removed: int
    removed_messages: list[str]
    #: Tokens of their texts, as the build's tokenizer counts them.
    token_reduction: int
    run_id: str
    #: The rows themselves, where that is configured.
    rows: list[dict[str, Any]] | None = None


class Summarized(BaseModel):
    """A summary of older rows was stored; `context.summarized`."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)

    #: Rows that the summary stands for, and newer ones that stay as they are.
    summarized: int
    kept: int
    summary: str
    message_ids: list[str]
    #: When the first and the last of them were said; null where that is not known.
    first: datetime | None = Field(alias="from")
    last: datetime | None = Field(alias="to")
    generation: int
    run_id: str | None = None


class Compacted(BaseModel):
    """What a summary saves; `context.compacted`."""

    model_config = ConfigDict(frozen=True)

    #: Tokens of the rows, and of the summary that stands for them.
    original_tokens: int
    new_tokens: int
    messages_summarized: int
    messages_kept: int
    #: What made the summary: a model's name, or a method's.
    summarizer: str


class EventMetadata(BaseModel):
    """What an event comes from, as far as it comes from a request."""

    model_config = ConfigDict(frozen=True)

    request_id: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    build_id: str | None = None


#: The metadata of an event that no request led to.
UNCAUSED: Final = EventMetadata()


class Event(BaseModel, Generic[Content]):
    """An event in its envelope, which is that of every message."""

    model_config = ConfigDict(frozen=True)

    schema_version: str = EVENT_VERSION
    id: str
    run_id: str | None
    owner_key: str
    role: str = "SYSTEM"
    timestamp: datetime
    content: Content
    metadata: EventMetadata = UNCAUSED


class Events(Protocol):
    """Tells what happens to contexts; raises nothing, and promises nothing."""

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,
        run_id: str | None,
        cause: EventMetadata = UNCAUSED,
    ) -> None:
        """Tell on a topic; ``content`` has the shape of one of the classes above."""
        ...
