"""Requests: their models, and `decode`, which reads one from untrusted bytes."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

import structlog
from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import from_json

from formatters.custom import TAG_PATTERN
from formatters.friends_info import read_profile_text
from formatters.guard import GUARD
from formatters.model import BUILT_IN_TAGS
from formatters.providers.context_management import ContextEdit, ContextManagement
from formatters.providers.formats import Format
from formatters.rows import as_mapping
from service.errors import ContextBuilderError, Problem, did_you_mean, escape_key, shown
from service.wire.payload import (
    MAX_BYTES,
    MAX_ID,
    MAX_OWNER_KEY,
    JsonObject,
    canonical_json_fast,
    clean_json,
    derive_id,
    encode_json,
    fingerprint,
    read_json,
    read_json_fast,
)
from service.wire.protocol import SCHEMA_VERSION
from service.wire.validation import (
    INPUT_KEYS,
    MAX_COMPARED_KEYS,
    SYSTEM_KEYS,
    Id,
    ModelName,
    OwnerKey,
    check_consistency,
    check_ids,
    check_input,
    check_version,
    clean_parts,
    has_lone_surrogate,
    invalid_errors,
    is_recall,
    is_short_form,
    omit_derived,
    with_derived_ids,
)

log = structlog.get_logger(__name__)

RequestT = TypeVar("RequestT", bound=BaseModel)

#: Limits of the characters of W3C's trace headers; its lists may be longer, but rarely are.
MAX_TRACEPARENT: Final = 256
MAX_TRACESTATE: Final = 512
#: Keys for which null differs from absent: no tools, and no limit of rows.
MEANING_NULLS: Final = frozenset({"tools", "memory_limit"})

#: The headers ``traceparent`` and ``tracestate``, each None if absent.
Trace = tuple[str | None, str | None]


class Tolerant(BaseModel, extra="ignore", frozen=True):
    """A part of a request in which null means absent, as senders in many languages write it."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:  # noqa: ANN401 - whatever was sent
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {k: v for k, v in data.items() if v is not None or k in MEANING_NULLS}


def _read_header(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    """Read an invalid trace header as absent, so that no request fails for its trace."""
    try:
        return read(value)
    except ValidationError:
        return _log_ignored_header(info.field_name)


@cache  # logged once per process: a sender with an invalid header sends many
def _log_ignored_header(key: str | None) -> None:
    log.warning("trace.ignored", key=key)


class RequestMetadata(Tolerant, strict=True):
    """Where the response goes, its deadline, and the trace of the request."""

    correlation_id: Annotated[str, Field(max_length=256)] | None = None
    #: Replaces `context.build.response` as the destination of the response.
    reply_to: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    reply_kind: Literal["channel", "stream", "list"] = "channel"
    #: Milliseconds after receipt at which the request expires.
    timeout_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    #: When the request expires; takes precedence over ``timeout_ms``.
    deadline: Annotated[datetime, Field(strict=False)] | None = None
    #: The span of the sender, in the form of W3C's header.
    traceparent: Annotated[
        Annotated[str, Field(max_length=MAX_TRACEPARENT)] | None, WrapValidator(_read_header)
    ] = None
    #: Vendors' data of the trace, in the form of W3C's header.
    tracestate: Annotated[
        Annotated[str, Field(max_length=MAX_TRACESTATE)] | None, WrapValidator(_read_header)
    ] = None

    @property
    def trace(self) -> Trace:
        """Return the sender's trace headers."""
        return self.traceparent, self.tracestate

    def expires_at(self, received_at: datetime, default_ms: int) -> datetime:
        """Return the deadline of the request; one without a time zone is in UTC."""
        if self.deadline is not None:
            naive = self.deadline.tzinfo is None
            return self.deadline.replace(tzinfo=UTC) if naive else self.deadline
        return received_at + timedelta(milliseconds=self.timeout_ms or default_ms)


#: The kind of a request: a context, or messages of the history (`service.wire.recall`).
RequestKind = Literal["build", "recall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The parts of a request that its response repeats; readable even if the rest is invalid."""

    id: str
    owner_key: str
    run_id: str | None
    fingerprint: str
    metadata: RequestMetadata
    #: The kind of the request: a context, or earlier messages.
    kind: RequestKind = "build"
    #: Whether the metadata, or where it sends the reply, can't be read.
    reply_unreadable: bool = False
    #: False if the owner or the id can't be read, or not all of the message: the owner may be empty
    #: or the id derived, the error isn't stored, and only the sender's ``reply_to`` may get it.
    identified: bool = True


#: Bytes that are read of a message that is too large.
HEAD_BYTES: Final = 65_536


def read_head(payload: bytes) -> JsonObject:
    """Return keys of a message that is too large to read, so that its sender can be answered.

    They are those before the end of the first `HEAD_BYTES`, without the content. The metadata is a
    text if it isn't among them: its reply address is unknown, not absent.
    """
    try:
        head = from_json(payload[:HEAD_BYTES], allow_partial=True)
    except ValueError:
        return {}
    if not isinstance(head, dict):
        return {}
    if head and len(payload) > HEAD_BYTES:
        head.popitem()  # its value may be cut
    head.pop("content", None)
    return {"metadata": "not read", **head}


def read_envelope(raw: Mapping[str, object], payload: bytes) -> Envelope | None:
    """Read the envelope of a message that may be invalid elsewhere.

    None if its owner or id can't be read, and it names no place for the reply.
    """
    owner_key, request_id = (
        read_text_id(raw, "owner_key", MAX_OWNER_KEY),
        read_text_id(raw, "id", MAX_ID),
    )
    run_id, is_identified = raw.get("run_id"), None not in (owner_key, request_id)
    given = raw.get("metadata")
    fields = given if isinstance(given, dict) else {}
    known = {key: fields[key] for key in RequestMetadata.model_fields if key in fields}
    readable = {key: value for key, value in known.items() if _is_readable(key, value)}
    if not is_identified and readable.get("reply_to") is None:
        return None
    return Envelope(
        id=request_id or derive_id(payload),
        owner_key=owner_key or "",
        run_id=run_id if isinstance(run_id, str) and not has_lone_surrogate(run_id) else None,
        fingerprint=_fingerprint(raw, payload),
        metadata=RequestMetadata.model_validate(readable),
        kind="recall" if is_recall(raw.get("content")) else "build",
        reply_unreadable=not isinstance(given, dict | None)
        or not {"reply_to", "reply_kind"}.isdisjoint(known.keys() - readable.keys()),
        identified=is_identified,
    )


def read_text_id(raw: Mapping[str, object], key: str, max_length: int) -> str | None:
    """Return the owner or the id of a message; None if it can't be read."""
    value = raw.get(key)
    if isinstance(value, str) and 0 < len(value) <= max_length and not has_lone_surrogate(value):
        return value
    return None


def _is_readable(key: str, value: object) -> bool:
    try:
        RequestMetadata.model_validate({key: value})
    except ValidationError:
        return False
    return True


def _fingerprint(raw: Mapping[str, object], payload: bytes) -> str:
    try:
        return fingerprint(raw)
    except RecursionError:  # nested too deeply; the bytes are as distinctive
        return hashlib.sha256(payload).hexdigest()


#: Limit of the rows in `context.past`.
MAX_PAST: Final = 20_000
#: Limit of the blocks in `context.blocks`.
MAX_BLOCKS: Final = 64
#: Limits of `context.context_management`: edits, characters of a type, characters of all edits.
MAX_EDITS: Final = 16
MAX_EDIT_TYPE: Final = 128
MAX_EDITS_CHARS: Final = 16_384


def _strategies(value: Any) -> Any:  # noqa: ANN401 - checked here
    members = value if isinstance(value, list) else [value]
    if value is None or all(isinstance(member, str | dict) for member in members):
        return value
    raise ValueError("must be a name, an object with a name and parameters, or a list of these")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


_STRATEGY_SCHEMA: Final = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "required": ["name"]},
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]},
            "minItems": 1,
        },
        {"type": "null"},
    ]
}


class EditOption(Tolerant, extra="allow", strict=True):
    """An edit for the provider to make; the provider documents its further keys."""

    type: Annotated[str, Field(min_length=1, max_length=MAX_EDIT_TYPE)]


class ManagementOption(Tolerant, extra="forbid", strict=True):
    """How the provider is to manage a long context on its side."""

    edits: Annotated[list[EditOption], Field(min_length=1, max_length=MAX_EDITS)]

    @field_validator("edits")
    @classmethod
    def _short(cls, edits: list[EditOption]) -> list[EditOption]:
        size = sum(len(edit.model_dump_json()) for edit in edits)
        if size > MAX_EDITS_CHARS:
            raise ValueError(
                f"has {size} characters of JSON; at most {MAX_EDITS_CHARS} are allowed"
            )
        return edits

    def to_management(self) -> ContextManagement:
        """Return it in the type that the providers' forms take."""
        return ContextManagement(
            tuple(ContextEdit(edit.type, edit.model_extra or {}) for edit in self.edits)
        )


class ContextOptions(Tolerant, extra="allow", strict=True):
    """Options of a context; every key is optional."""

    #: The model that reads the context; determines the token limit and the tokenizer.
    model: ModelName | None = None
    #: Tokens of the whole context window.
    max_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    #: Tokens reserved for the answer.
    reserve_tokens: Annotated[int, Field(ge=0)] | None = None
    #: A name, ``{"name": …, parameters}``, or a list of these, applied in order.
    strategy: Annotated[Any, AfterValidator(_strategies), WithJsonSchema(_STRATEGY_SCHEMA)] = None
    layout: Literal["tagged", "chat"] | None = None
    format: Format | None = None
    #: Printed rows of history; null for no limit.
    memory_limit: Annotated[int, Field(ge=0)] | None = None
    #: Limit of the tokens of all blocks that hold history.
    memory_tokens: Annotated[int, Field(ge=64)] | None = None
    #: Limit of the tokens of the tools: the array and `[CAPABILITIES]` together.
    tools_tokens: Annotated[int, Field(ge=0)] | None = None
    memory_timezone: Literal["utc", "client"] | None = None
    #: Whether the header of `[SHARED_MEMORY]` has a count, which changes with each turn.
    memory_header: Literal["counted", "still"] | None = None
    #: Custom blocks: tag to text.
    blocks: Annotated[dict[str, str], Field(max_length=MAX_BLOCKS)] | None = None
    #: Rows of history, oldest first, that replace the store's.
    past: Annotated[list[dict[str, Any]], Field(max_length=MAX_PAST)] | None = None
    #: Whether the model gets the tool `recall`, with handles of what isn't shown.
    recall_tool: bool | None = None
    #: Whether the response lists its decisions.
    explain: bool | None = None
    scope: Literal["conversation", "owner"] | None = None
    #: Replaces the configured identity, if the configuration allows it.
    identity: Annotated[str, Field(min_length=1), AfterValidator(_not_blank)] | None = None
    #: Edits for the provider of ``format``.
    context_management: ManagementOption | None = None

    @field_validator("blocks")
    @classmethod
    def _tags(cls, blocks: dict[str, str] | None) -> dict[str, str] | None:
        for tag in blocks or {}:
            if not TAG_PATTERN.fullmatch(tag):
                raise ValueError(f"{shown(tag)} is not a tag; use capital letters, digits and _")
            if tag in BUILT_IN_TAGS or GUARD.shatter(f"[{tag}]") != f"[{tag}]":
                raise ValueError(f"{shown(tag)} is reserved by the service or a chat template")
        return blocks


#: The keys of `context`.
OPTIONS: Final = frozenset(ContextOptions.model_fields)


class RunMessage(Tolerant, extra="allow"):
    """A message of a run: the current input, or a message that followed it."""

    id: Id | None = None
    run_id: str | None = None
    owner_key: str | None = None
    role: str = "HUMAN"
    content: Any = None
    timestamp: Any = None
    metadata: dict[str, Any] | None = None


class RunMetadata(Tolerant):
    """The profile and clock of the human, and the options of the context."""

    user_profile: dict[str, Any] | None = None
    client_timestamp_utc: Any = None
    #: Minutes west of UTC, as of JavaScript's ``getTimezoneOffset``; int or string.
    client_timezone_offset: Any = 0
    context: ContextOptions = ContextOptions()


def _one_kind(tools: list[Any] | None) -> list[Any] | None:
    kinds = {type(tool) for tool in tools or ()}
    if kinds in (set(), {str}, {dict}):
        return tools
    raise ValueError("must be a list of names or a list of definitions")


_TOOLS_SCHEMA: Final = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "object"}},
        {"type": "null"},
    ]
}

#: Absent or []: all tools of the registry; null: none. Names select, definitions replace.
Tools = Annotated[list[Any] | None, AfterValidator(_one_kind), WithJsonSchema(_TOOLS_SCHEMA)]


class Run(Tolerant):
    """An input, with the messages that answer it so far.

    The first message of its history is the current input. The others followed it, oldest first:
    assistant messages with their tool calls, and tool results.
    """

    id: str | None = None
    owner_key: str | None = None
    status: str = "BUILDING_CONTEXT"
    iteration_count: int = 0
    tools: Tools = Field(default_factory=list)
    history: Annotated[list[RunMessage], Field(min_length=1)]
    metadata: RunMetadata = RunMetadata()


class ShortContent(Tolerant, extra="allow"):
    """The short form of a content, for people and scripts."""

    current_input: Any
    user_profile: dict[str, Any] | None = None
    timestamp_utc: Any = None
    timezone_offset: Any = 0
    tools: Tools = Field(default_factory=list)
    context: ContextOptions = ContextOptions()

    def run(self) -> Run:
        """Return the same content as a run."""
        return Run(
            tools=self.tools,
            history=[RunMessage(content=self.current_input)],
            metadata=RunMetadata(
                user_profile=self.user_profile,
                client_timestamp_utc=self.timestamp_utc,
                client_timezone_offset=self.timezone_offset,
                context=self.context,
            ),
        )


def set_options(request: dict[str, Any], options: Mapping[str, object]) -> None:
    """Set options of the context in a raw request of either form.

    Does nothing if the request has another value where its options belong; `decode` refuses it.
    """
    holder = request.get("content")
    if isinstance(holder, dict) and not is_short_form(holder):
        holder = holder.setdefault("metadata", {})
    current = holder.setdefault("context", {}) if isinstance(holder, dict) else None
    if isinstance(current, dict):
        current.update(options)


def _form(content: object) -> str:
    """Return the tag of the form that a content has."""
    short = (
        is_short_form(content)
        if isinstance(content, (dict, Mapping))  # most are a dict: the check of others is slow
        else isinstance(content, ShortContent)
    )
    return "short" if short else "run"


Content = Annotated[
    Annotated[Run, Tag("run")] | Annotated[ShortContent, Tag("short")], Discriminator(_form)
]


class RequestFields(Tolerant, json_schema_extra=omit_derived):
    """The parts that requests of all kinds have."""

    #: Set by the model of each kind.
    kind: ClassVar[RequestKind]

    schema_version: str = SCHEMA_VERSION
    id: Id
    run_id: Id | None = None
    owner_key: OwnerKey
    #: In a recall, the only conversation whose messages may be fetched.
    conversation_id: Id | None = None
    role: str = "SYSTEM"
    timestamp: Any = None
    content: Any  # each kind has a type of its own
    metadata: RequestMetadata = RequestMetadata()
    #: Set on receipt, never by a sender: the hash that distinguishes two requests with one id, and
    #: the time of receipt. Fields, because private attributes would add 10 % to the validation.
    fingerprint: Annotated[str, SkipJsonSchema(), Field(exclude=True)] = ""
    received_at: Annotated[datetime | None, SkipJsonSchema(), Field(exclude=True)] = None
    #: Set on receipt too: pointers of keys in the wrong place, or with a slip in their name.
    misplaced: Annotated[tuple[str, ...], SkipJsonSchema(), Field(exclude=True)] = ()

    @cached_property
    def envelope(self) -> Envelope:
        """The parts of the request that its response repeats."""
        return Envelope(
            id=self.id,
            owner_key=self.owner_key,
            run_id=self.run_id,
            fingerprint=self.fingerprint,
            metadata=self.metadata,
            kind=self.kind,
        )

    def _explain_ignored(self, parent: str, key: str, known: Iterable[str]) -> str:
        """Return what is said of an ignored key; ``known`` are those of a content at ``parent``."""
        if key == "conversation_id":
            return "is ignored here; it belongs beside owner_key"
        if not parent and key in _METADATA_KEYS:
            return "is ignored here; it belongs into /metadata"
        known = {"": _REQUEST_KEYS, "/metadata": _METADATA_KEYS}.get(parent, known)
        return f"is unknown and ignored{did_you_mean(key, known)}"


_METADATA_KEYS: Final = frozenset(RequestMetadata.model_fields)
_REQUEST_KEYS: Final = frozenset(RequestFields.model_fields) - {
    *("fingerprint", "received_at", "misplaced")
}
#: How similar an unknown key is to a known one that was meant, from 0 to 1, and its least length.
SIMILAR_KEY: Final = 0.8
LEAST_KEY: Final = 5


def misplaced_keys(request: Mapping[str, object], options: Set[str] = frozenset()) -> list[str]:
    """Return pointers of keys that belong elsewhere, or have a slip in their name.

    ``options`` are those of a context. Other unknown keys are the sender's own, and not looked for
    in a content whose models keep them. What is in its place too isn't misplaced.
    """
    content, metadata = as_mapping(request.get("content")), as_mapping(request.get("metadata"))
    places = {"": (request, _REQUEST_KEYS), "/metadata": (metadata, _METADATA_KEYS)}
    holder = content
    if options and not is_short_form(content):
        holder = as_mapping(content.get("metadata"))
        places["/content"] = (content, frozenset(Run.model_fields))
        places["/content/metadata"] = (holder, frozenset(RunMetadata.model_fields))
    unknown = {
        place: [*islice((key for key in given if key not in known), MAX_COMPARED_KEYS)]
        for place, (given, known) in places.items()
    }
    if not any(unknown.values()):
        return []  # as in most requests
    elsewhere = {"conversation_id"} - request.keys()
    if options:
        elsewhere |= {"context", "messages"} - holder.keys()
        elsewhere |= options - as_mapping(holder.get("context")).keys()
    pointers = []
    for place, keys in unknown.items():
        known = places[place][1]
        belong = elsewhere | (_METADATA_KEYS - metadata.keys()) if not place else elsewhere
        for key in map(str, keys):
            is_slip = len(key) >= LEAST_KEY and did_you_mean(key, known, cutoff=SIMILAR_KEY)
            if key in belong or is_slip:
                pointers.append(f"{place}/{escape_key(key)}")
    return sorted(pointers)


#: The texts of a profile, which are read in its `prompt_overrides` only.
_PROFILE_TEXTS: Final = ("friends_profile", "learning")

#: What is said of keys of other APIs, which are too unlike those that are meant.
_OTHER_KEYS: Final = {
    **dict.fromkeys(("messages", "history"), INPUT_KEYS),
    **dict.fromkeys(("system", "system_prompt"), SYSTEM_KEYS),
    "token_budget": "did you mean max_tokens of context?",
}


class BuildRequest(RequestFields):
    """A request to build a context, on the topic `context.build.request`.

    Validation of an object raises errors of `service.errors` only: `InvalidRequestError` with a
    JSON pointer for each problem, `UnsupportedContentError` or `UnsupportedVersionError`. Use
    `decode` for bytes.
    """

    kind = "build"

    run_id: Id
    content: Content
    #: Set on receipt too: the end of derived ids.
    derived_name: Annotated[str, SkipJsonSchema(), Field(exclude=True)] = ""

    @model_validator(mode="wrap")
    @classmethod
    def _validate(
        cls, data: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        context = info.context or {}
        with invalid_errors(as_mapping(data)):
            if not isinstance(data, dict):
                return handler(data)
            check_version(data)
            check_consistency(data)
            receipt = {
                "fingerprint": context.get("fingerprint") or fingerprint(data),
                "received_at": context.get("received_at"),
                "misplaced": misplaced_keys(data, OPTIONS),
            }
            nameless = context.get("nameless", False)
            request = handler(with_derived_ids(data, nameless=nameless) | receipt)
        first = request.run.history[0]
        check_input(first.content, first.role, request.input_pointer)
        if info.context is None:  # otherwise all of it was read from JSON
            _clean_parts(request)
        return request

    @cached_property
    def run(self) -> Run:
        """The content as a run, whichever form it has."""
        content = self.content
        return content.run() if isinstance(content, ShortContent) else content

    @property
    def options(self) -> ContextOptions:
        """Return the options for the context."""
        return self.run.metadata.context

    @property
    def current_input(self) -> str:
        """Return the text of the current input."""
        return str(self.run.history[0].content)

    @property
    def input_id(self) -> str:
        """Return the id of the current input's row in the history."""
        return self.run.history[0].id or f"in_{self.derived_name}"

    @property
    def former_ids(self) -> tuple[str, str] | None:
        """Return the ids that versions up to 1.0 gave the input's row and the run, if different.

        Other requests may have had the same ids then.
        """
        name = self.id.removeprefix("msg_")
        if self.run.history[0].id or name == self.derived_name:
            return None
        derived_run = self.run_id == f"run_{self.derived_name}"
        return f"in_{name}", f"run_{name}" if derived_run else self.run_id

    @property
    def run_rows(self) -> list[dict[str, Any]]:
        """Return the messages after the input as rows, each with a unique id."""
        rows: dict[str, dict[str, Any]] = {}
        given = {self.input_id, *(message.id for message in self.run.history)}
        for index, message in enumerate(self.run.history[1:], start=1):
            row_id = str(message.id)
            if not message.id or message.id == self.input_id or message.id in rows:
                row_id = f"{self.input_id}.{index}"
                while row_id in given:
                    row_id += "_"
            rows[row_id] = {**message.model_dump(), "id": row_id}
        return list(rows.values())

    @property
    def derived_ids(self) -> frozenset[str]:
        """Return the ids in `run_rows` that were made for messages without an id."""
        own = {message.id for message in self.run.history}
        return frozenset(row["id"] for row in self.run_rows if row["id"] not in own)

    @property
    def input_pointer(self) -> str:
        """Return the JSON pointer of the current input."""
        short = isinstance(self.content, ShortContent)
        return "/content/current_input" if short else "/content/history/0/content"

    @property
    def options_pointer(self) -> str:
        """Return the JSON pointer of the options."""
        short = isinstance(self.content, ShortContent)
        return "/content/context" if short else "/content/metadata/context"

    @property
    def ignored_keys(self) -> Iterator[Problem]:
        """Yield the keys that are ignored, each with a suggestion."""
        place = self.options_pointer
        for key in self.options.model_extra or {}:
            yield Problem(f"{place}/{escape_key(key)}", self._explain_misplaced(place, key))
        extra = self.content.model_extra if isinstance(self.content, ShortContent) else None
        for key in extra or {}:
            yield Problem(f"/content/{escape_key(key)}", self._explain_misplaced("/content", key))
        for pointer in self.misplaced:
            parent, _, key = pointer.rpartition("/")
            yield Problem(pointer, self._explain_misplaced(parent, key))
        holder, profile = place.removesuffix("/context"), self.run.metadata.user_profile or {}
        if not read_profile_text(profile) and read_profile_text({"prompt_overrides": profile}):
            for key in filter(profile.get, _PROFILE_TEXTS):
                detail = "is ignored here; it belongs into prompt_overrides of user_profile"
                yield Problem(f"{holder}/user_profile/{key}", detail)

    def _explain_misplaced(self, parent: str, key: str) -> str:
        if key in OPTIONS:
            return f"is ignored here; it belongs into {self.options_pointer}"
        if key == "context":
            holder = self.options_pointer.removesuffix("/context")
            return f"is ignored here; it belongs into {holder}"
        if key in _OTHER_KEYS:
            return f"is unknown and ignored; {_OTHER_KEYS[key]}"
        places = {self.options_pointer: self.options, "/content/metadata": self.run.metadata}
        known = type(places.get(parent, self.content)).model_fields
        return self._explain_ignored(parent, key, known)


def _clean_parts(request: BuildRequest) -> None:
    """Read the provider parts of all rows as `decode` does; the caller's own rows don't change."""
    for index, row in enumerate(request.options.past or ()):
        pointer = f"{request.options_pointer}/past/{index}"
        clean_parts(row, pointer)
        if "provider_parts" in as_mapping(row.get("metadata")):
            row["metadata"] = {**row["metadata"]}
            clean_parts(row["metadata"], f"{pointer}/metadata")
    for index, message in enumerate(request.run.history):
        pointer = f"/content/history/{index}"
        clean_parts(message.model_extra or {}, pointer)
        clean_parts(message.metadata or {}, f"{pointer}/metadata")


class RejectedError(ContextBuilderError):
    """A message is not a request that can be built."""

    def __init__(self, error: ContextBuilderError, envelope: Envelope | None) -> None:
        super().__init__(error.detail, error.problems)
        self.error = error
        #: None if no response can be addressed.
        self.envelope = envelope


def decode(
    payload: bytes, *, received_at: datetime | None = None, max_bytes: int = MAX_BYTES
) -> BuildRequest:
    """Read a request for a context from untrusted bytes; ``received_at`` is the time of receipt.

    Raises:
        RejectedError: It can't be built; has the error, and the envelope to answer if readable.
    """
    return decode_as(lambda _: BuildRequest, payload, received_at=received_at, max_bytes=max_bytes)


def decode_again(request: Mapping[str, object], *, received_at: datetime) -> BuildRequest:
    """Read a request that was read before, of any size; raises as `decode` does."""
    payload = encode_json(request)
    return decode(payload, received_at=received_at, max_bytes=len(payload))


def decode_as(
    choose: Callable[[JsonObject], type[RequestT]],
    payload: bytes,
    *,
    received_at: datetime | None,
    max_bytes: int,
) -> RequestT:
    """Read a request as `decode` does; ``choose`` returns the model of the JSON object."""
    raw: JsonObject = {}
    try:
        plain = read_json_fast(payload, max_bytes=max_bytes)
        raw = plain or read_json(payload, max_bytes=max_bytes)
        nameless = not raw.get("id")
        raw["id"] = raw.get("id") or derive_id(payload)
        if not plain:
            check_ids(raw)
        context = {
            "fingerprint": fingerprint(raw, canonical_json_fast) if plain else None,
            "received_at": received_at,
            "nameless": nameless,
        }
        return choose(raw).model_validate(raw if plain else clean_json(raw), context=context)
    except ContextBuilderError as error:
        if len(payload) <= max_bytes:
            raise RejectedError(error, read_envelope(raw, payload)) from error
        envelope = read_envelope(read_head(payload), payload)
        # not stored under the id, which the request may have again when it is shorter
        unstored = envelope and replace(envelope, identified=False)
        raise RejectedError(error, unstored) from error
