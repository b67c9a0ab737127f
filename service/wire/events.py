"""Events on the bus: what happens to an owner's context, apart from responses."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, Field

Content = TypeVar("Content")

EVENT_VERSION: Final = "1.0"


class Pruned(BaseModel, frozen=True):
    """Rows of history were left out of a context for the first time; `context.pruned`."""

    #: Rows of history in the context, with the removed rows and without them.
    original: int
    final: int
    #: Rows of history of which the context shows only the call of the tool, in neither number.
    annotated: int = 0
    #: The number of removed rows, and their ids, oldest first.
    removed: int
    removed_messages: list[str]
    #: Tokens of their texts, by the build's tokenizer.
    token_reduction: int
    run_id: str
    #: The rows themselves, if `events.content` is set.
    rows: list[dict[str, Any]] | None = None


class Summarized(BaseModel, frozen=True, serialize_by_alias=True, validate_by_name=True):
    """A summary was stored, or `count_summary` counted rows; `context.summarized`."""

    #: The numbers of rows that the summary replaces, and of newer rows that remain.
    summarized: int
    kept: int
    summary: str
    message_ids: list[str]
    #: The times of the first and the last of these rows; null if unknown.
    first: datetime | None = Field(alias="from")
    last: datetime | None = Field(alias="to")
    generation: int
    run_id: str | None = None


class Compacted(BaseModel, frozen=True):
    """The tokens that a summary saves; `context.compacted`."""

    #: Tokens of the rows, and of the summary that replaces them.
    original_tokens: int
    new_tokens: int
    messages_summarized: int
    messages_kept: int
    #: The name of the model or the method that wrote the summary.
    summarizer: str


class EventMetadata(BaseModel, frozen=True):
    """The request and the build that caused an event; empty if none did."""

    request_id: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    build_id: str | None = None


#: The metadata of an event that no request caused.
NO_CAUSE: Final = EventMetadata()


class Event(BaseModel, Generic[Content], frozen=True):
    """An event in the envelope that all messages have."""

    schema_version: str = EVENT_VERSION
    id: str
    run_id: str | None
    owner_key: str
    role: str = "SYSTEM"
    timestamp: datetime
    content: Content
    metadata: EventMetadata = NO_CAUSE


class Events(Protocol):
    """Publishes what happens to contexts; never raises, and delivery is not guaranteed."""

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,
        run_id: str | None,
        cause: EventMetadata = NO_CAUSE,
    ) -> None:
        """Publish on a topic; ``content`` has the fields of one of the classes above."""
