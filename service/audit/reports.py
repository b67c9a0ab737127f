"""Build reports: inputs, decisions and usage of a build.

A report is the content of the response with all decisions, the request's ids and options, and the
settings that shaped the build. It holds texts (messages, tool definitions, the request itself) only
where ``http.content`` is ``full``. Without them, each message and tool has a digest, so that two
reports can still be compared.
"""

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel

from formatters.guard import GUARD_VERSION
from formatters.model import Tag
from service.budget.groups import Strategy
from service.budget.strategies.composite import Composite
from service.budget.strategy_names import PLAIN
from service.build.account import Built, ShownRows, list_decisions, to_record
from service.config.paths import dotted, leaves
from service.config.settings import Settings
from service.wire.payload import canonical_json
from service.wire.request import BuildRequest
from service.wire.response import (
    UNPACKED_MAX_BYTES,
    BuildSuccess,
    DecisionRecord,
    Usage,
    WarningRecord,
)

#: Read once: it takes a millisecond.
PACKAGE_VERSION: Final = version("ctxb")

#: The tag that a message of ours begins with, as in ``[SHARED_MEMORY count=3]``.
TAG: Final = re.compile(r"\[([A-Z][A-Z0-9_]*)(?: [a-z]+=[^\]\n]*)?\]")
#: Options of a request that hold texts, and one that may: instructions to a provider.
_TEXT_OPTIONS: Final = frozenset({"past", "blocks", "identity"})
_PROVIDER_OPTION: Final = "context_management"
#: The sections of the settings that a context depends on; in the first ones, texts are names.
_NAMED_SECTIONS: Final = ("preset", "guard", "role_marks", "budget", "memory", "gather")
_SECTIONS: Final = (*_NAMED_SECTIONS, "prompts", "summaries", "user_defaults")
#: Names in the other sections.
_NAMED_SETTINGS: Final = ("prompts.identity", "prompts.capabilities")

#: The form of a build id; nothing else is looked up on the bus.
BUILD_ID: Final = re.compile(r"bld_[0-9a-f]{32}")

ContentMode = Literal["redacted", "full"]


class ReportedMessage(BaseModel, frozen=True):
    """A message that was sent."""

    role: str
    #: The tag that it begins with, if any.
    block: str | None
    #: The length of its text.
    characters: int
    digest: str
    #: The whole message in OpenAI's form; null in a redacted report.
    message: dict[str, Any] | None = None


class ReportedTool(BaseModel, frozen=True):
    """A tool that was offered."""

    name: str
    digest: str
    #: Null in a redacted report.
    definition: dict[str, Any] | None = None


class ContentReport(BaseModel, frozen=True):
    """The content of a response: all that is needed to compare two builds."""

    build_id: str
    usage: Usage
    #: The numbers of rows by decision: kept, dropped, and others if there are any.
    outcomes: dict[str, int]
    decisions: list[DecisionRecord]
    warnings: list[WarningRecord]
    messages: list[ReportedMessage]
    tools: list[ReportedTool]
    #: The worker's settings that differ from their defaults, by dotted path; ``set`` is a text.
    #: None if they are not known, as those of a response.
    settings: dict[str, Any] | None = None


class ReportedRequest(BaseModel, frozen=True):
    """The request: its ids and options, and all of it where texts are kept."""

    id: str
    run_id: str
    owner_key: str
    conversation_id: str | None
    fingerprint: str
    #: The id of the input's row in the history.
    input_id: str
    #: The current input; null in a redacted report.
    question: str | None = None
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


class ReportedRead(BaseModel, frozen=True):
    """How much of the history was read."""

    rows: int
    not_read: int
    #: How many of the rows were found by a search; these are the oldest.
    found: int = 0
    #: How many rows had no vector yet, so that words alone ranked them; null without vectors.
    without_vector: int | None = None
    #: The limits: of printed rows, and of tokens.
    limit: int | None
    max_tokens: int | None


class BuildReport(ContentReport):
    """The input of a context, and its result."""

    #: The version of the document; reports of other versions are ignored.
    version: Literal[2] = 2
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
    layout: Literal["tagged", "chat"]
    read: ReportedRead
    #: The ids of the summaries that were read.
    summaries: list[str]
    #: How many messages at the beginning the next build repeats; null if not even the tools.
    stable_messages: int | None
    #: How long the parts of the build took.
    seconds: dict[str, float]

    def packed(self) -> bytes:
        """Return the report as it is stored: JSON, compressed by zlib."""
        # the fastest level, since reports are short-lived
        return zlib.compress(self.model_dump_json().encode(), level=1)


def unpack_report(packed: bytes) -> BuildReport:
    """Read a stored report; raises `ValueError` if it is not one, or of another version."""
    try:
        text = zlib.decompressobj().decompress(packed, UNPACKED_MAX_BYTES)
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
        layout=plan.layout,
        read=ReportedRead(
            rows=gathered.history.read,
            not_read=gathered.history.not_read,
            found=gathered.history.found or 0,
            without_vector=gathered.history.without_vector,
            limit=plan.memory.limit,
            max_tokens=plan.reading_tokens,
        ),
        summaries=[summary.id for summary in gathered.summaries],
        stable_messages=built.fitted.stable_prefix.messages or None,
        seconds=dict(built.seconds),
    )


def find_reported(report: BuildReport) -> ShownRows:
    """Return the rows that a reported build shows, its input included."""
    native: set[str] = {report.request.input_id}
    printed: set[str] = set()
    for decision in report.decisions:
        if decision.decision in {"kept", "repaired"}:
            shown = native if decision.block in {Tag.HISTORY, Tag.RUN} else printed
            shown |= {*decision.message_ids}
    return ShownRows(whole=frozenset(native), annotated=frozenset(printed))


def report_content(content: BuildSuccess, *, full: bool) -> ContentReport:
    """Return the content of a response as a report has it, with texts if ``full``."""
    return ContentReport(
        build_id=content.build_id,
        usage=content.usage,
        outcomes=content.outcomes,
        decisions=content.decisions,
        warnings=content.warnings,
        messages=[
            ReportedMessage(
                role=str(message.get("role")),
                block=block_of(message),
                characters=len(str(message.get("content") or "")),
                digest=_digest(message),
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

    Texts and paths that aren't names are given as ``set``: they may be prompts, or hold secrets.
    """
    defaults = dict(leaves(Settings()))
    return {
        dotted(keys): value
        if keys[0] in _NAMED_SECTIONS
        or dotted(keys) in _NAMED_SETTINGS
        or isinstance(value, bool | int | float | None)
        else "set"
        for keys, value in leaves(settings)
        if keys[0] in _SECTIONS and value != defaults.get(keys, ...)
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
    options, run = request.options, request.run
    known = options.model_fields_set & set(type(options).model_fields)
    hidden = _TEXT_OPTIONS if full else _TEXT_OPTIONS | {_PROVIDER_OPTION}
    brought = {
        "past": options.past is not None,
        "blocks": options.blocks,
        "identity": options.identity is not None,
        "user_profile": run.metadata.user_profile,
        "tools": any(isinstance(tool, Mapping) for tool in run.tools or ()),
        "run": len(run.history) > 1,
    }
    return ReportedRequest(
        id=request.id,
        run_id=request.run_id,
        owner_key=request.owner_key,
        conversation_id=request.conversation_id,
        fingerprint=request.fingerprint,
        input_id=request.input_id,
        question=request.current_input if full else None,
        now=now if now.tzinfo else now.astimezone(),
        tools=None if run.tools is None else [name for name in run.tools if isinstance(name, str)],
        options={name: getattr(options, name) for name in sorted(known - hidden)},
        brought=[part for part, value in brought.items() if value],
        body=request.model_dump(mode="json", exclude_unset=True) if full else None,
    )


def _digest(value: object) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:16]
