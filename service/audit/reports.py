"""Build reports: inputs, decisions and usage of a build, stored on the bus for a limited time.

A report is the content of the response with all decisions, the request's ids and options, and the
settings that shaped the build. It holds texts (messages, tool definitions, the request itself) only
where ``http.content`` is ``full``. Without them, each message and tool has a digest, so that two
reports can still be compared.
"""

import asyncio
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final, Literal

import structlog
from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from formatters.guard import GUARD_VERSION
from service.budget.groups import Strategy
from service.budget.strategies.composite import Composite
from service.budget.strategy_names import PLAIN
from service.build.account import Built, list_decisions, to_record
from service.build.after_answer import BuildQueue, Losses, build_bytes
from service.config.paths import dotted, leaves
from service.config.settings import Settings
from service.errors import BusError, ContextBuilderError
from service.ports.bus import ReportStore
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess, DecisionRecord, Usage, WarningRecord

log = structlog.get_logger(__name__)

#: Read once: it takes a millisecond.
PACKAGE_VERSION: Final = version("context-builder")
#: The version of the document; reports of other versions are ignored.
VERSION: Final = 1
#: A report that decompresses to more bytes than this was not written by this service.
_UNPACKED_MAX_BYTES: Final = 64 * 1_048_576
#: The fastest level: reports are short-lived.
_LEVEL: Final = 1
#: Reports that are stored in one round trip at most.
BATCH: Final = 32
#: Bytes held by a build from which on its report is written in a thread: some milliseconds of work.
_LARGE_BUILD: Final = 500_000

#: The tag that a message of ours begins with, as in ``[SHARED_MEMORY count=3]``.
TAG: Final = re.compile(r"\[([A-Z][A-Z0-9_]*)(?: [a-z]+=[^\]\n]*)?\]")
#: Hexadecimal digits of a digest.
_DIGITS: Final = 16
#: Options of a request that hold texts, and one that may: instructions to a provider.
_TEXT_OPTIONS: Final = frozenset({"past", "blocks", "identity"})
_PROVIDER_OPTION: Final = "context_management"
#: The sections of the settings that a context depends on; in the first ones, texts are names.
_NAMED_SECTIONS: Final = ("budget", "memory", "gather")
_SECTIONS: Final = (*_NAMED_SECTIONS, "prompts", "summaries", "user_defaults")

#: The form of a build id; the bus is asked for nothing else.
BUILD_ID: Final = re.compile(r"bld_[0-9a-f]{32}")

ContentMode = Literal["redacted", "full"]


class ReportNotFoundError(ContextBuilderError, code="not_found"):
    """There is nothing of that name for this owner."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class ReportedMessage(_Record):
    """A message that was sent."""

    role: str
    #: The tag that it begins with, if any.
    block: str | None
    #: The length of its text.
    characters: int
    digest: str
    #: The whole message in OpenAI's form; null in a redacted report.
    message: dict[str, Any] | None = None


class ReportedTool(_Record):
    """A tool that was offered."""

    name: str
    digest: str
    #: Null in a redacted report.
    definition: dict[str, Any] | None = None


class ContentReport(_Record):
    """The content of a response: all that is needed to compare two builds."""

    build_id: str
    usage: Usage
    kept: int
    dropped: int
    decisions: list[DecisionRecord]
    warnings: list[WarningRecord]
    messages: list[ReportedMessage]
    tools: list[ReportedTool]
    #: The worker's settings that differ from their defaults, by dotted path; ``set`` is a text.
    #: None if they are not known, as those of a response.
    settings: dict[str, Any] | None = None


class ReportedRequest(_Record):
    """The request: its ids and options, and all of it where texts are kept."""

    id: str
    run_id: str
    owner_key: str
    conversation_id: str | None
    fingerprint: str
    #: The id of the input's row in the history.
    input_id: str
    #: The moment of the request, in the client's time zone.
    now: AwareDatetime
    #: Names of tools, [] for all, null for none; [] where the request defined its own.
    tools: list[str] | None
    #: Without those that hold texts.
    options: dict[str, Any]
    #: The parts with texts that the request brought besides the input: ``past``, ``blocks``,
    #: ``identity``, ``user_profile``, ``tools`` (definitions), and ``run`` (messages of the run).
    brought: list[str]
    #: The request as it was sent; null in a redacted report.
    body: dict[str, Any] | None = None

    def redacted(self) -> "ReportedRequest":
        """Return the request without texts."""
        plain = {name: value for name, value in self.options.items() if name != _PROVIDER_OPTION}
        return self.model_copy(update={"options": plain, "body": None})


class ReportedRead(_Record):
    """How much of the history was read."""

    rows: int
    not_read: int
    #: How many of the rows were found by a search; these are the oldest.
    found: int = 0
    #: The limits: of printed rows, and of tokens.
    limit: int | None
    max_tokens: int | None


class BuildReport(ContentReport):
    """What a context was made of and what it came to."""

    version: Literal[1] = VERSION
    settings: dict[str, Any]
    #: When it was built.
    at: AwareDatetime
    #: Whether the report has texts.
    content: ContentMode
    #: The versions of the package and of the guard.
    package: str
    guard: int
    request: ReportedRequest
    #: The strategy's name and parameters; the members of a list are in ``strategies``.
    strategy: dict[str, Any]
    read: ReportedRead
    #: The ids of the summaries that were read.
    summaries: list[str]
    #: How many messages at the beginning the next build repeats; null if not even the tools.
    stable_messages: int | None
    #: How long the parts of the build took.
    seconds: dict[str, float]

    def packed(self) -> bytes:
        """Return the report as it is stored: JSON, compressed by zlib."""
        return zlib.compress(_WRITE(self), _LEVEL)

    def redacted(self) -> "BuildReport":
        """Return the report without texts."""
        return self.model_copy(
            update={
                "content": "redacted",
                "messages": [
                    message.model_copy(update={"message": None}) for message in self.messages
                ],
                "tools": [tool.model_copy(update={"definition": None}) for tool in self.tools],
                "request": self.request.redacted(),
            }
        )


#: Unlike a model's own method, it returns bytes without a detour over a string.
_WRITE: Final = TypeAdapter(BuildReport).dump_json


def unpack_report(packed: bytes) -> BuildReport:
    """Read a stored report; raises `ValueError` if it is not one, or of another version."""
    try:
        text = zlib.decompressobj().decompress(packed, _UNPACKED_MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"not compressed by zlib: {error}") from error
    return BuildReport.model_validate_json(text)


def make_report(
    built: Built, *, at: datetime, content: ContentMode, settings: Mapping[str, Any]
) -> BuildReport:
    """Return the report of a build; ``settings`` are those of `changed_settings`."""
    plan, gathered, full = built.plan, built.gathered, content == "full"
    decisions = [to_record(decision) for decision in list_decisions(plan, gathered, built.fitted)]
    explained = built.content.model_copy(update={"decisions": decisions})
    return BuildReport(
        **dict(report_content(explained, full=full)) | {"settings": settings},
        at=at,
        content=content,
        package=PACKAGE_VERSION,
        guard=GUARD_VERSION,
        request=_request(built.request, plan.now, full=full),
        strategy=strategy_parameters(plan.strategy),
        read=ReportedRead(
            rows=gathered.history.read,
            not_read=gathered.history.not_read,
            found=gathered.history.found or 0,
            limit=plan.memory.limit,
            max_tokens=plan.reading_tokens,
        ),
        summaries=[summary.id for summary in gathered.summaries],
        stable_messages=built.fitted.stable_prefix.messages or None,
        seconds=dict(built.seconds),
    )


def report_content(content: BuildSuccess, *, full: bool) -> ContentReport:
    """Return the content of a response as a report has it, with texts if ``full``."""
    return ContentReport(
        build_id=content.build_id,
        usage=content.usage,
        kept=content.kept,
        dropped=content.dropped,
        decisions=content.decisions,
        warnings=content.warnings,
        messages=[
            ReportedMessage(
                role=str(message.get("role")),
                block=block_of(message),
                characters=len(str(message.get("content") or "")),
                digest=_message_digest(message),
                message=message if full else None,
            )
            for message in content.messages
        ],
        tools=[
            ReportedTool(
                name=str(tool.get("function", {}).get("name")),
                digest=_digest(tool),
                definition=tool if full else None,
            )
            for tool in content.tools
        ],
    )


def block_of(message: Mapping[str, Any]) -> str | None:
    """Return the tag that a message begins with."""
    tag = TAG.match(str(message.get("content") or ""))
    return tag[1] if tag else None


def changed_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that contexts depend on and that differ from their defaults.

    Texts and paths outside the sections of names are given as ``set``: they may be prompts, or
    hold secrets.
    """
    defaults = dict(leaves(Settings()))
    changed = [
        (keys, value)
        for keys, value in leaves(settings)
        if keys[0] in _SECTIONS and value != defaults.get(keys, ...)
    ]
    return {
        dotted(keys): value
        if keys[0] in _NAMED_SECTIONS or isinstance(value, bool | int | float | None)
        else "set"
        for keys, value in changed
    }


def strategy_parameters(strategy: Strategy) -> dict[str, Any]:
    """Return a strategy's name and its plain parameters."""
    result: dict[str, Any] = {"name": strategy.name}
    if isinstance(strategy, Composite):
        result["strategies"] = [strategy_parameters(member) for member in strategy.strategies]
    elif is_dataclass(strategy):
        values = {item.name: getattr(strategy, item.name) for item in fields(strategy)}
        result |= {name: value for name, value in values.items() if isinstance(value, PLAIN)}
    return result


def _request(request: BuildRequest, now: datetime, *, full: bool) -> ReportedRequest:
    tools = request.run.tools
    return ReportedRequest(
        id=request.id,
        run_id=request.run_id,
        owner_key=request.owner_key,
        conversation_id=request.conversation_id,
        fingerprint=request.fingerprint,
        input_id=request.input_id,
        now=now if now.tzinfo else now.astimezone(),
        tools=None if tools is None else [name for name in tools if isinstance(name, str)],
        options=_plain_options(request, full=full),
        brought=list(_brought_texts(request)),
        body=request.model_dump(mode="json", exclude_unset=True) if full else None,
    )


def _plain_options(request: BuildRequest, *, full: bool) -> dict[str, Any]:
    """Return the options that were given and are known, without those that hold texts."""
    options = request.options
    known = options.model_fields_set & set(type(options).model_fields)
    hidden = _TEXT_OPTIONS if full else _TEXT_OPTIONS | {_PROVIDER_OPTION}
    return {name: getattr(options, name) for name in sorted(known - hidden)}


def _brought_texts(request: BuildRequest) -> Iterator[str]:
    options, run = request.options, request.run
    if options.past is not None:
        yield "past"
    if options.blocks:
        yield "blocks"
    if options.identity is not None:
        yield "identity"
    if run.metadata.user_profile:
        yield "user_profile"
    if any(isinstance(tool, Mapping) for tool in run.tools or ()):
        yield "tools"
    if len(run.history) > 1:
        yield "run"


def _message_digest(message: Mapping[str, Any]) -> str:
    if message.get("role") == "system" and message.keys() == {"role", "content"}:
        return _system_digest(message["content"])
    return _digest(message)


@lru_cache(maxsize=8)  # most builds share one long system message
def _system_digest(content: str) -> str:
    return _digest({"role": "system", "content": content})


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


class BuildReports:
    """Stores the reports of builds in the background, and finds them; failures are only logged."""

    def __init__(
        self,
        store: ReportStore,
        settings: Settings,
        clock: Callable[[], datetime],
        stored: Callable[[BuildReport], object] | None = None,
    ) -> None:
        """Keep reports in a store; ``stored`` is called with each report once it is there."""
        self._store = store
        self._settings = settings.reports
        self._content = settings.http.content
        self._changed_settings = changed_settings(settings)
        self._clock = clock
        self._stored = stored
        self._losses = Losses(_log_loss, _log_resumption)
        self._queue = BuildQueue(self.store, self._is_enabled, self._losses, batch=BATCH)

    def keep(self, built: Built) -> None:
        """Queue the report of a build; neither waits nor raises."""
        self._queue.keep(built)

    async def run(self) -> None:
        """Store queued reports until cancelled."""
        await self._queue.run()

    async def drain(self) -> None:
        """Wait for `run` to store what is queued, for a limited time."""
        await self._queue.drain()

    def _is_enabled(self, _built: Built) -> bool:
        return self._settings.ttl_seconds > 0

    async def store(self, builds: Sequence[Built]) -> None:
        """Store the reports of builds in one round trip; one that can't be written is left out."""
        written = []
        for built in builds:
            if pair := await self._write(built):
                written.append(pair)
            await asyncio.sleep(0)  # a report takes some 0.4 ms: let other work run in between
        try:
            packed = {report.build_id: data for report, data in written}
            await self._store.put(packed, self._settings.ttl_seconds)
        except BusError as error:
            self._losses.add(builds, str(error))
            return
        self._queue.succeeded()
        if self._stored:
            for report, _ in written:
                self._stored(report)

    async def _write(self, built: Built) -> tuple[BuildReport, bytes] | None:
        """Return a report and its stored form; None if it can't be written, which is logged."""
        try:
            if build_bytes(built) < _LARGE_BUILD:
                report, packed = self._pack(built)
            else:
                report, packed = await asyncio.to_thread(self._pack, built)
        except (ValueError, TypeError) as error:
            _log_loss(built, str(error))
            return None
        if len(packed) <= self._settings.max_bytes:
            return report, packed
        _log_loss(built, f"the report has {len(packed)} bytes")
        return None

    def _pack(self, built: Built) -> tuple[BuildReport, bytes]:
        """Return a report and its stored form; one that is too large goes without its texts."""
        report = make_report(
            built, at=self._clock(), content=self._content, settings=self._changed_settings
        )
        packed = report.packed()
        if report.content == "full" and len(packed) > self._settings.max_bytes:
            report = report.redacted()
            packed = report.packed()
        return report, packed

    async def find(self, build_id: str) -> BuildReport | None:
        """Return the report of a build, or None if there is none that this version can read.

        Raises `BusError`.
        """
        packed = await self._store.get(build_id)
        if packed is None:
            return None
        try:
            return unpack_report(packed)
        except ValueError as error:
            log.warning("report.unreadable", build_id=build_id, reason=type(error).__name__)
            return None

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds still have a report; raises `BusError`."""
        return await self._store.existing(build_ids)


def _log_loss(built: Built, reason: str) -> None:
    log.warning("report.lost", build_id=built.content.build_id, reason=reason)


def _log_resumption(lost: int) -> None:
    log.info("report.resumed", lost=lost)
