"""An owner's builds: listed, shown, compared, and built again with other options."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import Field, create_model

from formatters.providers.formats import Format, build_provider_request
from service.audit.compare import Comparison, compare
from service.audit.report_store import find_report
from service.audit.reports import BUILD_ID, BuildReport, ContentMode, make_report
from service.audit.what_if import build_with_options
from service.budget.counting import messages_tokens
from service.build.tools import tools_json
from service.config.endpoints import is_loopback
from service.errors import NotFoundError
from service.http.endpoint import Body, EndpointCall, Query, Services
from service.http.recent_builds import REFUSED, BuildSummary, summary_of
from service.ports.services import TokenCounter
from service.wire.request import ContextOptions, ManagementOption
from service.wire.response import DecisionRecord, Usage, WarningRecord

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


class PageQuery(Query):
    """Which builds are listed."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    before: Annotated[int, Field(ge=1, le=2**53)] | None = None


class FormQuery(Query):
    """The form of the body."""

    format: Format = "openai"


WhatIfBody: Final = create_model(
    "WhatIfBody",
    __base__=Body,
    __doc__="Options of a context to replace; the others stay as they were.",
    **{name: (_TYPES[name], None) for name in WHAT_IF_OPTIONS},  # type: ignore[call-overload] # names are data
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPage:
    """Builds of an owner, newest first."""

    builds: Sequence[BuildSummary]
    #: The value of ``before`` for the next page; null if this is the last one.
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentOwner:
    """An owner of recent builds."""

    owner_key: str
    #: The time of the newest one.
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentOwners:
    """The owners of this worker's recent builds, the newest first."""

    owners: Sequence[RecentOwner]
    #: Whether owners are listed here: without a token, for callers on the same machine only.
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message that was sent, without its text where content is redacted or not kept."""

    role: str
    #: The tag that it begins with, if any.
    block: str | None
    characters: int
    #: Null where texts are redacted or not kept.
    tokens: int | None = None
    #: The whole message, in OpenAI's form.
    message: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTool:
    """A tool that was offered."""

    name: str
    #: The tokens of its definition; null where texts are redacted or not kept.
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBuild:
    """A build: its figures, decisions and messages."""

    summary: BuildSummary
    usage: Usage
    #: The strategy's name and parameters.
    strategy: Mapping[str, Any]
    layout: Literal["tagged", "chat"]
    #: The option of the request; null where it set no limit.
    memory_tokens: int | None
    #: The worker's settings that differ from the defaults and shaped the build.
    settings: Mapping[str, Any]
    decisions: Sequence[DecisionRecord]
    messages: Sequence[ShownMessage]
    tools: Sequence[ShownTool]
    warnings: Sequence[WarningRecord]
    source: Literal["report"] = "report"
    content: ContentMode
    #: Why texts are missing although this worker shows content.
    unavailable: str | None = None
    #: Milliseconds that gathering and fitting took.
    timings: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForm:
    """A context as the body of a provider's call."""

    format: str
    #: Null where content is redacted or not kept.
    body: Mapping[str, Any] | None
    content: ContentMode
    unavailable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A build with other options, and how it differs from the build as it was."""

    build: ShownBuild
    comparison: Comparison


async def list_builds(call: EndpointCall) -> BuildPage:
    """List the owner's newest builds on this worker, newest first.

    A build whose report is gone, as after an erasure, is not listed. The bus is queried about all
    of them at once: one connection each would leave the worker none for its own requests.
    """
    recent, limit = call.services.recent, call.query.limit
    before = call.query.before or math.inf
    builds = recent.of(call.owner_key, before=before)[::-1][: limit + 1]
    page = await _drop_erased([build.summary for build in builds[:limit]], call.services)
    return BuildPage(builds=page, next=builds[limit - 1].number if len(builds) > limit else None)


async def list_owners(call: EndpointCall) -> RecentOwners:
    """List the owners of this worker's recent builds, where only this machine can ask.

    With a token, on another address than loopback, or where other pages may ask, none is listed.
    """
    http = call.builder.settings.http
    if http.token is not None or http.allowed_origins or not is_loopback(http.host):
        return RecentOwners(owners=(), listed=False)
    newest = call.services.recent.newest_by_owner()
    present = await _drop_erased([build.summary for build in newest.values()], call.services)
    names = {summary.build_id for summary in present}
    owners = [
        RecentOwner(owner_key=owner, at=build.summary.at)
        for owner, build in newest.items()
        if build.summary.build_id in names
    ]
    return RecentOwners(owners=owners, listed=True)


async def _drop_erased(
    summaries: Sequence[BuildSummary], services: Services
) -> Sequence[BuildSummary]:
    """Return those whose reports exist, and refused requests; the others are listed no more."""
    names = [summary.build_id for summary in summaries if not summary.refusal]
    present = await services.reports.existing(names) if names else frozenset()
    for name in set(names) - present:
        services.recent.drop(name)
    return [each for each in summaries if each.refusal or each.build_id in present]


async def show_build(call: EndpointCall) -> ShownBuild:
    """Show a build of the owner: usage, decisions, messages."""
    return await _shown_build(await find_build(call, call.request.path_params["id"]), call)


async def show_form(call: EndpointCall) -> ShownForm:
    """Show the context of a build as the body of a provider's call."""
    report, form, body = (
        await find_build(call, call.request.path_params["id"]),
        call.query.format,
        None,
    )
    if call.content == report.content == "full":
        body = await asyncio.to_thread(_body_in, form, report)
    missing = _missing_texts(report, call.content)
    return ShownForm(format=form, body=body, content=call.content, unavailable=missing)


async def diff_builds(call: EndpointCall) -> Comparison:
    """Compare two builds of the owner."""
    a, b = [await find_build(call, call.request.path_params[name]) for name in ("a", "b")]
    return await asyncio.to_thread(compare, a, b, call.content)


async def what_if(call: EndpointCall) -> WhatIf:
    """Build again with other options, on the history as it is now; stores nothing."""
    before = await find_build(call, call.request.path_params["id"])
    options = {name: getattr(call.body, name) for name in call.body.model_fields_set}
    built = await build_with_options(before, options, call.builder)
    now = make_report(built, at=before.at, content=call.content, settings=before.settings)
    comparison = await asyncio.to_thread(compare, before, now, call.content)
    return WhatIf(build=await _shown_build(now, call), comparison=comparison)


async def find_build(call: EndpointCall, build_id: str) -> BuildReport:
    """Return the report of a build of the owner.

    Raises `NotFoundError`, with the same text for builds of other owners and unknown ones.
    """
    if BUILD_ID.fullmatch(build_id):
        report = await find_report(call.services.reports, build_id)
        if report and report.request.owner_key == call.owner_key:
            return report
        if report is None:
            call.services.recent.drop(build_id)
    if build_id.startswith(REFUSED):
        detail = (
            "a refused request has no build: its entry in GET /v1/builds has the error, as refusal"
        )
        raise NotFoundError(detail)
    raise NotFoundError(
        "this owner has no such build: it has expired, was erased, or belongs to another owner"
    )


def _body_in(form: str, report: BuildReport) -> Mapping[str, Any]:
    """Return the context of a full report in the form of a provider."""
    messages = [message.message or {} for message in report.messages]
    tools = [tool.definition or {} for tool in report.tools]
    option = report.request.options.get("context_management")
    management = ManagementOption.model_validate(option).to_management() if option else None
    body = build_provider_request(form, messages, tools, report.stable_messages, management)
    return body or {"messages": messages, **({"tools": tools} if tools else {})}


async def _shown_build(report: BuildReport, call: EndpointCall) -> ShownBuild:
    """Return a build as this worker shows it."""
    content = call.content
    messages: Sequence[int | None] = [None] * len(report.messages)
    tools: Sequence[int | None] = [None] * len(report.tools)
    if content == report.content == "full":
        counter = call.builder.tokenizers.counter(report.usage.tokenizer)
        messages, tools = await asyncio.to_thread(_count_parts, report, counter)
    return ShownBuild(
        summary=summary_of(report, content),
        usage=report.usage,
        strategy=report.strategy,
        layout=report.layout,
        memory_tokens=report.request.options.get("memory_tokens"),
        settings=report.settings,
        decisions=report.decisions,
        messages=[
            ShownMessage(
                role=message.role,
                block=message.block,
                characters=message.characters,
                tokens=tokens,
                message=message.message if content == "full" else None,
            )
            for message, tokens in zip(report.messages, messages, strict=True)
        ],
        tools=[
            ShownTool(name=tool.name, tokens=tokens)
            for tool, tokens in zip(report.tools, tools, strict=True)
        ],
        warnings=report.warnings,
        content=content,
        unavailable=_missing_texts(report, content),
        timings={part: round(seconds * 1000, 3) for part, seconds in report.seconds.items()},
    )


def _count_parts(report: BuildReport, counter: TokenCounter) -> tuple[list[int], list[int]]:
    """Count the tokens of each message and of each tool of a full report."""
    messages = [messages_tokens([each.message or {}], counter.count) for each in report.messages]
    return messages, [counter.count(tools_json([tool.definition or {}])) for tool in report.tools]


def _missing_texts(report: BuildReport, content: ContentMode) -> str | None:
    """Return why a report has no texts although they may be shown, or None."""
    if content == "redacted" or report.content == "full":
        return None
    return (
        "its report has no texts: the worker that built it keeps none (http.content), or with them"
        " the report would exceed reports.max_bytes"
    )
