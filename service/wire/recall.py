"""Recalls: requests for earlier messages that a context doesn't show, and their responses.

They come on the streams of all requests, distinguished by their content, or on a topic of their
own, from which workers move them there.
"""

from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from service.errors import InvalidRequestError, Problem, did_you_mean, escape_key
from service.wire.payload import MAX_BYTES, canonical_json, derive_id, fingerprint
from service.wire.request import RejectedError, RequestFields, Tolerant, decode_as, misplaced_keys
from service.wire.response import BuildFailure, ResponseFields, WarningRecord
from service.wire.validation import (
    BUILD_PLACE,
    MAX_COMPARED_KEYS,
    RECALL_MODES,
    Id,
    ModelName,
    check_version,
    invalid_errors,
    is_build,
)

#: Limits of a recall's content: characters of a query and of a text, ids, messages on either
#: side of one, and pages.
MAX_QUERY: Final = 8_192
MAX_GREP: Final = 1_024
MAX_IDS: Final = 100
MAX_AROUND: Final = 200
MAX_PAGE: Final = 20
#: Limits of the tokens of an answer.
MIN_TOKENS: Final = 64
MAX_TOKENS: Final = 100_000
#: The most ids that an answer lists of the messages that it leaves out.
MAX_LEFT_OUT: Final = 1_000

#: Values of arguments that models fill in but don't mean. Of `before` and `after`, 0 is a number.
_PLACEHOLDERS: Final[dict[str, tuple[object, ...]]] = {
    **dict.fromkeys([*RECALL_MODES, "before", "after", "older_than", "with_ids"], ("", [])),
    "ids": ("", [], [""]),
    "lines": ("", [], [0, 0]),
    "page": ("", [], 0),
}


class RecallContent(Tolerant, extra="allow", strict=True):
    """The messages to fetch, by ``query``, ``ids``, ``around`` or ``grep``, and their limits."""

    #: The topic of the messages; they are ranked as the strategy ``relevance`` ranks.
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)] | None = None
    #: Ids of messages and of summaries, or the handles that a context shows in their place.
    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS)] | None = None
    #: The id or handle of a message to show with the messages before and after it.
    around: Id | None = None
    #: A plain text that the messages contain, in any case.
    grep: Annotated[str, Field(min_length=1, max_length=MAX_GREP)] | None = None
    #: How many messages to show before and after that of ``around``.
    before: Annotated[int, Field(ge=0, le=MAX_AROUND)] = 10
    after: Annotated[int, Field(ge=0, le=MAX_AROUND)] = 10
    #: The first and the last line to show, from 1, of the only message in ``ids``.
    lines: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    #: Which part of the answers to a ``query`` to show, from 1.
    page: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 1
    #: Where a ``grep`` goes on: only messages older than this one are searched.
    older_than: Id | None = None
    #: The most tokens of the answer.
    max_tokens: Annotated[int, Field(ge=MIN_TOKENS, le=MAX_TOKENS)] | None = None
    #: A build of the same owner: what it showed whole isn't repeated, except by ``ids``.
    exclude_build: Id | None = None
    #: Whether the answers to a ``query`` show the ids of messages, as the others do.
    with_ids: bool = False
    #: The model that reads the answer; determines the tokenizer.
    model: ModelName | None = None
    #: The moment of the question, and the client's time zone.
    timestamp_utc: Any = None
    timezone_offset: Any = 0

    @model_validator(mode="before")
    @classmethod
    def _omit_empty(cls, content: Any) -> Any:  # noqa: ANN401 - a sender's
        """Leave out empty values if one of the first four isn't: models fill in every argument."""
        if not isinstance(content, dict):
            return content
        empty = [key for key, values in _PLACEHOLDERS.items() if content.get(key) in values]
        if all(content.get(mode) is None or mode in empty for mode in RECALL_MODES):
            return content
        return {key: value for key, value in content.items() if key not in empty}

    @field_validator("query", "grep")
    @classmethod
    def _has_words(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise ValueError("must not be blank")
        return text

    @field_validator("lines")
    @classmethod
    def _ascend(cls, lines: list[int] | None) -> list[int] | None:
        if lines is not None and not 1 <= lines[0] <= lines[1]:
            raise ValueError("must be the first and the last line, counted from 1")
        return lines

    @model_validator(mode="after")
    def _has_one_mode(self) -> Self:
        if sum(getattr(self, mode) is not None for mode in RECALL_MODES) != 1:
            slips = (
                did_you_mean(key, RECALL_MODES)
                for key in islice(self.model_extra or (), MAX_COMPARED_KEYS)
            )
            meant = next(filter(None, slips), "")
            raise ValueError(f"needs exactly one of {', '.join(RECALL_MODES)}{meant}")
        if self.lines is not None and len(self.ids or ()) != 1:
            raise ValueError("lines need a single id in ids")
        return self


class RecallRequest(RequestFields):
    """A request for earlier messages, on the topic `context.recall.request`.

    Validation of an object raises as that of a `BuildRequest` does.
    """

    kind = "recall"

    content: RecallContent

    @model_validator(mode="wrap")
    @classmethod
    def _validate(
        cls, data: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        context = info.context or {}
        with invalid_errors():
            if not isinstance(data, dict):
                return handler(data)
            check_version(data)
            if is_build(data.get("content")):
                # of the whole request: its content may be valid on the other topic
                detail = f"is no recall; send it to {BUILD_PLACE}"
                raise InvalidRequestError(f"the request {detail}", [Problem("", detail)])
            receipt = {
                "id": data.get("id") or derive_id(canonical_json(data)),
                "fingerprint": context.get("fingerprint") or fingerprint(data),
                "received_at": context.get("received_at"),
                "misplaced": misplaced_keys(data),
            }
            return handler(data | receipt)

    @property
    def warnings(self) -> list[WarningRecord]:
        """Return a warning for each unknown key of the content, and each misplaced one."""
        known, warnings = RecallContent.model_fields, []
        unknown = [f"/content/{escape_key(key)}" for key in self.content.model_extra or {}]
        for pointer in (*self.misplaced, *unknown):
            parent, _, key = pointer.rpartition("/")
            detail = self._explain_ignored(parent, key, known)
            warnings.append(WarningRecord(code="unknown_key", pointer=pointer, detail=detail))
        return warnings


def decode_recall(
    payload: bytes, *, received_at: datetime | None = None, max_bytes: int = MAX_BYTES
) -> RecallRequest:
    """Read a recall as `decode` reads a request; raises `RejectedError`."""
    try:
        return decode_as(
            lambda _: RecallRequest, payload, received_at=received_at, max_bytes=max_bytes
        )
    except RejectedError as rejected:
        envelope = rejected.envelope and replace(rejected.envelope, kind="recall")
        raise RejectedError(rejected.error, envelope) from rejected.error


class RecalledMessage(BaseModel, frozen=True):
    """A message that was recalled, or several AI messages of a run that are shown as one."""

    message_ids: list[str]
    #: The short id of the first of them, which recalls take as well.
    handle: str
    role: Literal["human", "ai", "tool"]
    #: Of the first of them, if it has a readable one.
    timestamp: datetime | None
    #: As it is in the text: guarded, and cut unless it is ``whole``.
    text: str
    whole: bool
    #: The first and the last line that are shown, if the message was cut by lines.
    lines: tuple[int, int] | None = None


class RecallUsage(BaseModel, frozen=True):
    """The tokens of the text, 4 included for the message that carries it."""

    model: str | None
    tokenizer: str
    #: False where the counts are estimates.
    exact: bool
    max_tokens: int
    total: int


class RecallSuccess(BaseModel, frozen=True):
    """Earlier messages, oldest first."""

    status: Literal["success"] = "success"
    #: The text for the model.
    text: str
    messages: list[RecalledMessage]
    usage: RecallUsage
    #: How many of the messages that were searched or requested are not in the text, and the ids
    #: of at most 1,000 of them, oldest first.
    left_out: int
    left_out_ids: list[str]
    #: Contents of recalls that go on; empty if only repetitions are left, and after the last page.
    next: list[dict[str, Any]]
    warnings: list[WarningRecord] = []


class RecallResponse(ResponseFields, frozen=True):
    """The answer to a recall, on its `reply_to` or `context.recall.response`."""

    content: SerializeAsAny[Annotated[RecallSuccess | BuildFailure, Field(discriminator="status")]]
