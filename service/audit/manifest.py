"""What a build was made of, and the manifest of that."""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from formatters.guard import GUARD_VERSION
from formatters.model import Message
from formatters.rows import fix_surrogates
from prompts.system_prompt import SystemPrompt
from service.audit.compare import block_of
from service.budget.groups import Strategy
from service.budget.strategies.composite import Composite
from service.budget.strategy_names import PLAIN
from service.build.plan import Plan
from service.build.report import Built, decided
from service.config.paths import dotted, leaves
from service.config.settings import Settings
from service.wire.request import BuildRequest
from service.wire.response import Usage

#: The version of its form; one that is read under another is not understood.
VERSION: Final = 1
#: A manifest that unpacks to more bytes than this was not written here.
_UNPACKED_MAX_BYTES: Final = 64 * 1_048_576
#: Fast: higher levels save a twentieth, since most of it is hashes.
_LEVEL: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Ground(_Record):
    """What builds stand on for as long as a process runs."""

    #: The versions of the package and of the guard.
    package: str
    guard: int
    #: Hashes of the settings that a context depends on, by dotted path.
    settings: dict[str, str]


class RequestRecord(_Record):
    """The request, as far as it can be made again."""

    id: str
    run_id: str
    owner_key: str
    conversation_id: str | None
    fingerprint: str
    #: The input's row in the history, and the hash of its text.
    input_id: str
    input: str
    #: The moment of the request, in the client's zone.
    now: AwareDatetime
    #: Names of tools, [] for all, null for none; [] where ``brought`` has them.
    tools: list[str] | None
    #: Without those that hold words.
    options: dict[str, Any]
    #: Hashes of what came with the request and isn't kept: ``past``, ``blocks``, ``user_profile``,
    #: ``tools``, and the ``run`` behind the input.
    brought: dict[str, str]


class Candidate(_Record):
    """A row of history that was read, and what became of it."""

    id: str
    hash: str
    #: Null where a block of another package says nothing of it.
    decision: str | None
    reason: str | None
    #: The tokens before it, where the strategy goes by them.
    start: int | None = None


class MessageRecord(_Record):
    """A message that was sent."""

    role: str
    #: The tag that it opens with, if any.
    block: str | None
    hash: str


class ReadRecord(_Record):
    """How much of the history was read."""

    rows: int
    not_read: int
    #: Of the rows that were read, how many a search has found: the oldest.
    found: int = 0
    #: The bounds: of printed rows, and of the history's tokens.
    limit: int | None
    max_tokens: int | None


class Manifest(_Record):
    """What a build was made of and what came of it."""

    version: Literal[1] = VERSION
    build_id: str
    ground: Ground
    request: RequestRecord
    #: The strategy's name with its parameters; those of a list in ``strategies``.
    strategy: dict[str, Any]
    usage: Usage
    read: ReadRecord
    #: Oldest first; those of the current run last.
    candidates: list[Candidate]
    messages: list[MessageRecord]
    #: Hashes of the definitions, by name, in their order.
    tools: dict[str, str]
    #: The hash of the profile.
    profile: str
    #: The codes of the warnings.
    warnings: list[str]
    #: The ids of the summaries that were read.
    summaries: list[str] = []

    def packed(self) -> bytes:
        """Return it as it is stored: JSON, compressed by zlib."""
        return zlib.compress(_WRITTEN(self), _LEVEL)


#: A model's own method makes text of the bytes.
_WRITTEN: Final = TypeAdapter(Manifest).dump_json


def unpacked(packed: bytes) -> Manifest:
    """Read a manifest; raises `ValueError` where it is none, or of another version."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, _UNPACKED_MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"not compressed by zlib: {error}") from error
    return Manifest.model_validate_json(text)


#: Hex digits of a hash: enough to see a change, too few to tell all texts apart.
DIGITS: Final = 16
#: Options of a request that hold people's words.
_WORDS: Final = frozenset({"past", "blocks", "identity"})
#: The sections of the settings that a context depends on.
_SECTIONS: Final = ("budget", "memory", "prompts", "summaries", "user_defaults")

#: JSON with its keys sorted, and in their given order; made once, since rows are many.
_SORTED: Final = json.JSONEncoder(sort_keys=True, default=str)
_GIVEN: Final = json.JSONEncoder(default=str)


def make_manifest(built: Built, on: Ground) -> Manifest:
    """Write the manifest of a build; takes some 10 µs for each row that was read."""
    plan, gathered, content = built.plan, built.gathered, built.content
    return Manifest(
        build_id=content.build_id,
        ground=_with_texts(on, built.prompt),
        request=_request(built.request, plan),
        strategy=_strategy(plan.strategy),
        usage=content.usage,
        read=ReadRecord(
            rows=gathered.history.read,
            not_read=gathered.history.not_read,
            found=gathered.history.found or 0,
            limit=plan.memory.limit,
            max_tokens=plan.reading_tokens,
        ),
        candidates=list(_candidates(built)),
        messages=[
            MessageRecord(
                role=str(message.get("role")), block=block_of(message), hash=_message_hash(message)
            )
            for message in content.messages
        ],
        tools={str(tool["function"].get("name")): _ordered(tool) for tool in content.tools},
        profile=hashed(gathered.profile),
        warnings=[warning.code for warning in content.warnings],
        summaries=[summary.id for summary in built.gathered.summaries],
    )


def ground(settings: Settings) -> Ground:
    """Return what builds under these settings stand on."""
    found = leaves(settings)
    return Ground(
        package=version("context-builder"),
        guard=GUARD_VERSION,
        settings={dotted(keys): hashed(value) for keys, value in found if keys[0] in _SECTIONS},
    )


def hashed(value: object) -> str:
    """Return the hash of a value; of an object, whatever the order of its keys."""
    return _digits(_SORTED.encode(value))


def row_hash(message: Message) -> str:
    """Return the hash of a row of history, as it was read."""
    calls = [[call.id, call.name, call.arguments, call.text] for call in message.tool_calls]
    return hashed(
        [
            message.role,
            message.content,
            message.run_id,
            message.timestamp and message.timestamp.timestamp(),
            calls,
            message.tool_call_id,
            message.name,
            message.provider_parts,
        ]
    )


def _with_texts(on: Ground, prompt: SystemPrompt) -> Ground:
    """Add the texts that were in effect: files change while their settings stay."""
    texts = {
        "prompts.identity_file": _text_hash(prompt.identity),
        "prompts.sections": _text_hash(prompt.sections),
    }
    return on.model_copy(update={"settings": {**on.settings, **texts}})


def _message_hash(message: Mapping[str, Any]) -> str:
    if message.get("role") == "system" and message.keys() == {"role", "content"}:
        return _system_hash(message["content"])
    return hashed(message)


@lru_cache(maxsize=8)  # likewise the same few
def _system_hash(content: str) -> str:
    return hashed({"role": "system", "content": content})


@lru_cache(maxsize=8)  # builds have the same few texts, of some kilobytes
def _text_hash(text: str) -> str:
    return hashed(text)


def _request(request: BuildRequest, plan: Plan) -> RequestRecord:
    tools = request.run.tools
    return RequestRecord(
        id=request.id,
        run_id=request.run_id,
        owner_key=request.owner_key,
        conversation_id=request.conversation_id,
        fingerprint=request.fingerprint,
        input_id=request.input_id,
        input=hashed(fix_surrogates(request.current_input)),
        now=_aware(plan.now),
        tools=None if tools is None else [name for name in tools if isinstance(name, str)],
        options=_options(request),
        brought=dict(_brought(request)),
    )


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.astimezone()


def _options(request: BuildRequest) -> dict[str, Any]:
    """Return the options that were given and are known, without those that hold words."""
    options = request.options
    known = options.model_fields_set & set(type(options).model_fields)
    return {name: getattr(options, name) for name in sorted(known - _WORDS)}


def _brought(request: BuildRequest) -> Iterator[tuple[str, str]]:
    options, run = request.options, request.run
    if options.past is not None:
        yield "past", hashed(options.past)
    if options.blocks:
        yield "blocks", hashed(options.blocks)
    if options.identity is not None:
        yield "identity", hashed(options.identity)
    if run.metadata.user_profile:
        yield "user_profile", hashed(run.metadata.user_profile)
    if any(isinstance(tool, Mapping) for tool in run.tools or ()):
        yield "tools", hashed(run.tools)
    if len(run.history) > 1:
        yield "run", hashed([message.model_dump() for message in run.history[1:]])


def _strategy(strategy: Strategy) -> dict[str, Any]:
    told: dict[str, Any] = {"name": strategy.name}
    if isinstance(strategy, Composite):
        told["strategies"] = [_strategy(member) for member in strategy.strategies]
    elif is_dataclass(strategy):
        values = {each.name: getattr(strategy, each.name) for each in fields(strategy)}
        told |= {name: value for name, value in values.items() if isinstance(value, PLAIN)}
    return told


def _candidates(built: Built) -> Iterator[Candidate]:
    decisions = {
        name: decision
        for decision in decided(built.plan, built.gathered, built.fitted)
        for name in decision.message_ids
    }
    history = built.gathered.history
    for message in (*history.messages, *history.current):
        decision = decisions.get(message.id)
        yield Candidate(
            id=message.id,
            hash=row_hash(message),
            decision=decision and decision.outcome,
            reason=decision and decision.reason,
            start=history.starts.get(message.id),
        )


def _ordered(value: object) -> str:
    """Return the hash of a value whose keys stand in an order that matters."""
    return _digits(_GIVEN.encode(value))


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
