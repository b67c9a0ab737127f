"""What a request asks for: the run it comes from, and the options for its context."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from formatters.custom import TAG_PATTERN
from formatters.guard import quoted
from formatters.providers.context_management import ContextEdit, ContextManagement
from service.errors import shown
from service.wire.payload import MAX_ID

#: Keys whose null says something: no tools, and no limit of rows.
MEANING_NULLS: Final = frozenset({"tools", "memory_limit"})


class Tolerant(BaseModel):
    """A part of a request in which a key that is null has its default."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:  # noqa: ANN401 - whatever was sent
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {k: v for k, v in data.items() if v is not None or k in MEANING_NULLS}


#: Rows of history that a request may bring along.
MAX_PAST: Final = 20_000

#: Blocks that a request may bring along.
MAX_BLOCKS: Final = 64

#: Edits that a request may ask its provider for, the characters of a type's name, and of them all.
MAX_EDITS: Final = 16
MAX_EDIT_TYPE: Final = 128
MAX_EDITS_CHARS: Final = 16_384


def _strategies(value: Any) -> Any:  # noqa: ANN401 - checked here
    members = value if isinstance(value, list) else [value]
    if value is None or all(isinstance(member, str | dict) for member in members):
        return value
    raise ValueError("a name, an object with a name and parameters, or a list of these is needed")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
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


class EditOption(Tolerant):
    """Something that the provider is asked to do; its documentation says what else is in it."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: Annotated[str, Field(min_length=1, max_length=MAX_EDIT_TYPE)]


class ManagementOption(Tolerant):
    """What the provider is asked to do on its side with a long context."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    edits: Annotated[list[EditOption], Field(min_length=1, max_length=MAX_EDITS)]

    @field_validator("edits")
    @classmethod
    def _short(cls, edits: list[EditOption]) -> list[EditOption]:
        size = sum(len(edit.model_dump_json()) for edit in edits)
        if size > MAX_EDITS_CHARS:
            raise ValueError(f"{size} characters of JSON, of which {MAX_EDITS_CHARS} are taken")
        return edits

    def asked(self) -> ContextManagement:
        """Return it as the forms take it."""
        return ContextManagement(
            tuple(ContextEdit(edit.type, edit.model_extra or {}) for edit in self.edits)
        )


class ContextOptions(Tolerant):
    """What a request may say about the context that it wants; every key is optional."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    #: The model that will read the context; gives the token limit and the tokenizer.
    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    #: Tokens of the whole context window.
    max_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    #: Tokens kept free for the answer.
    reserve_tokens: Annotated[int, Field(ge=0)] | None = None
    #: A name, ``{"name": …, parameters}``, or a list of these, which are tried in turn.
    strategy: Annotated[Any, AfterValidator(_strategies), WithJsonSchema(_STRATEGY_SCHEMA)] = None
    layout: Literal["tagged", "chat"] | None = None
    format: Literal["openai", "openai_responses", "anthropic", "gemini"] | None = None
    #: Printed rows of history; null for no limit.
    memory_limit: Annotated[int, Field(ge=0)] | None = None
    #: Tokens for all that holds history.
    memory_tokens: Annotated[int, Field(ge=64)] | None = None
    #: Tokens for the tools, array and block together.
    tools_tokens: Annotated[int, Field(ge=0)] | None = None
    memory_timezone: Literal["utc", "client"] | None = None
    #: Whether the header of `[SHARED_MEMORY]` counts rows, and so changes each turn.
    memory_header: Literal["counted", "still"] | None = None
    #: Blocks of the request's own: tag to text.
    blocks: Annotated[dict[str, str], Field(max_length=MAX_BLOCKS)] | None = None
    #: History to use in place of the store's, oldest first.
    past: Annotated[list[dict[str, Any]], Field(max_length=MAX_PAST)] | None = None
    #: Whether the response lists its decisions.
    explain: bool | None = None
    scope: Literal["conversation", "owner"] | None = None
    #: In place of the configured identity, where the configuration allows it.
    identity: Annotated[str, Field(min_length=1), AfterValidator(_not_blank)] | None = None
    #: For the provider of ``format``.
    context_management: ManagementOption | None = None

    @field_validator("blocks")
    @classmethod
    def _tags(cls, blocks: dict[str, str] | None) -> dict[str, str] | None:
        for tag in blocks or {}:
            if not TAG_PATTERN.fullmatch(tag):
                raise ValueError(f"{shown(tag)} is no tag: capital letters, digits and _ are")
            if quoted(f"[{tag}]") != f"[{tag}]":
                raise ValueError(f"{shown(tag)} is taken, by the service or by a chat template")
        return blocks


class RunMessage(Tolerant):
    """A message of a run: the current input, or what has come of it since."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None
    run_id: str | None = None
    owner_key: str | None = None
    role: str = "HUMAN"
    content: Any = None
    timestamp: Any = None
    metadata: dict[str, Any] | None = None


class RunMetadata(Tolerant):
    """What the orchestrator knows about the human and wants from the context."""

    user_profile: dict[str, Any] | None = None
    client_timestamp_utc: Any = None
    #: Minutes west of UTC, as JavaScript's ``getTimezoneOffset`` gives them; int or string.
    client_timezone_offset: Any = 0
    context: ContextOptions = ContextOptions()


def _one_kind(tools: list[Any] | None) -> list[Any] | None:
    kinds = {type(tool) for tool in tools or ()}
    if kinds in (set(), {str}, {dict}):
        return tools
    raise ValueError("a list of names, or a list of definitions, is needed")


_TOOLS_SCHEMA: Final = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "object"}},
        {"type": "null"},
    ]
}

#: Absent or []: every tool of the registry. null: none. Names choose, definitions replace.
Tools = Annotated[list[Any] | None, AfterValidator(_one_kind), WithJsonSchema(_TOOLS_SCHEMA)]


class Run(Tolerant):
    """A run as the orchestrator holds it.

    The first message of its history is the current input; others are what the run has brought
    since, oldest first: assistant messages with their tool calls, and tool results.
    """

    id: str | None = None
    owner_key: str | None = None
    status: str = "BUILDING_CONTEXT"
    iteration_count: int = 0
    tools: Tools = Field(default_factory=list)
    history: Annotated[list[RunMessage], Field(min_length=1)]
    metadata: RunMetadata = RunMetadata()


class ShortContent(Tolerant):
    """A request in few words, for people and scripts."""

    model_config = ConfigDict(extra="allow", frozen=True)

    current_input: Any
    user_profile: dict[str, Any] | None = None
    timestamp_utc: Any = None
    timezone_offset: Any = 0
    tools: Tools = Field(default_factory=list)
    context: ContextOptions = ContextOptions()

    def run(self) -> Run:
        """Return the same request as a run."""
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


def set_options(request: dict[str, Any], wishes: Mapping[str, object]) -> None:
    """Write options of the context into a request that has not been read, in either form.

    What stands in their place and is something else altogether is left for `decode` to refuse.
    """
    place = request.get("content")
    if isinstance(place, dict) and "current_input" not in place:
        place = place.setdefault("metadata", {})
    options = place.setdefault("context", {}) if isinstance(place, dict) else None
    if isinstance(options, dict):
        options.update(wishes)


#: Keys that only a short content has, and keys that only a run has.
SHORT_KEYS: Final = frozenset(
    {"current_input", "timestamp_utc", "timezone_offset", "user_profile", "context"}
)
RUN_KEYS: Final = frozenset({"history", "metadata"})


def _form(content: object) -> str:
    """Tell which form a content has; without a sign of either it is read as a run."""
    if isinstance(content, Mapping):
        short = not SHORT_KEYS.isdisjoint(content) and RUN_KEYS.isdisjoint(content)
    else:
        short = isinstance(content, ShortContent)
    return "short" if short else "run"


Content = Annotated[
    Annotated[Run, Tag("run")] | Annotated[ShortContent, Tag("short")], Discriminator(_form)
]
