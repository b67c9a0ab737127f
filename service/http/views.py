"""What the routes answer about builds, with or without texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from service.audit.compare import Change, Comparison, HistoryChange, NameChanges
from service.audit.reports import BuildReport, ContentMode
from service.wire.response import DecisionRecord, Usage, WarningRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSummary:
    """A build in one line."""

    build_id: str
    #: When it was built.
    at: datetime
    request_id: str
    run_id: str
    conversation_id: str | None
    model: str | None
    strategy: str
    #: Tokens: of the context, available for it, and of the model's whole window.
    total: int
    available: int
    budget: int
    utilization: float
    kept: int
    dropped: int
    #: Codes.
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPage:
    """Builds of an owner, newest first."""

    builds: Sequence[BuildSummary]
    #: The value of ``before`` for the next page; null if this is the last one.
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message that was sent, without its text where content is redacted or not kept."""

    role: str
    #: The tag that it begins with, if any.
    block: str | None
    characters: int
    #: The whole message, in OpenAI's form.
    message: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBuild:
    """A build: its figures, decisions and messages."""

    summary: BuildSummary
    usage: Usage
    #: The strategy's name and parameters.
    strategy: Mapping[str, Any]
    #: The worker's settings that differ from the defaults and shaped the build.
    settings: Mapping[str, Any]
    decisions: Sequence[DecisionRecord]
    messages: Sequence[ShownMessage]
    #: Names.
    tools: Sequence[str]
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
class ShownChange:
    """A message that only one build sends, or that differs."""

    role: str
    block: str | None
    #: Its index in ``messages``, from 0; null where it isn't sent.
    a: int | None
    b: int | None
    #: How many lines only b has, and only a; null where texts are not kept.
    added: int | None
    removed: int | None
    #: Those lines, as a unified diff without context; null where content is redacted.
    lines: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownComparison:
    """Two builds side by side; a `Comparison` whose messages may be redacted."""

    identical: bool
    a: str
    b: str
    settings: Sequence[Change]
    tokens: Sequence[Change]
    tools: NameChanges
    history: Sequence[HistoryChange]
    messages: Sequence[ShownChange]
    warnings_a: Sequence[WarningRecord]
    warnings_b: Sequence[WarningRecord]
    content: ContentMode


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A build with other options, and how it differs from the build as it was."""

    build: ShownBuild
    comparison: ShownComparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The version of the service, and what it serves."""

    version: str
    #: The version of the wire.
    schema_version: str
    #: Whether texts are shown, and whether contexts can be requested.
    content: ContentMode
    build: bool


def summary_of(report: BuildReport) -> BuildSummary:
    """Return a build in one line."""
    request, usage = report.request, report.usage
    return BuildSummary(
        build_id=report.build_id,
        at=report.at,
        request_id=request.id,
        run_id=request.run_id,
        conversation_id=request.conversation_id,
        model=usage.model,
        strategy=str(report.strategy.get("name")),
        total=usage.total,
        available=usage.available,
        budget=usage.budget,
        utilization=usage.utilization,
        kept=report.kept,
        dropped=report.dropped,
        warnings=[warning.code for warning in report.warnings],
    )


def shown_build(report: BuildReport, content: ContentMode) -> ShownBuild:
    """Return a build as it is shown; ``content`` is the setting of this worker."""
    return ShownBuild(
        summary=summary_of(report),
        usage=report.usage,
        strategy=report.strategy,
        settings=report.settings,
        decisions=report.decisions,
        messages=[
            ShownMessage(
                role=message.role,
                block=message.block,
                characters=message.characters,
                message=message.message if content == "full" else None,
            )
            for message in report.messages
        ],
        tools=[tool.name for tool in report.tools],
        warnings=report.warnings,
        content=content,
        unavailable=missing_texts(report, content),
        timings={part: round(seconds * 1000, 3) for part, seconds in report.seconds.items()},
    )


def missing_texts(report: BuildReport, content: ContentMode) -> str | None:
    """Return why a report has no texts although they may be shown, or None."""
    if content == "redacted" or report.content == "full":
        return None
    return (
        "its report has no texts: the worker that built it keeps none (http.content), or with them"
        " the report would exceed reports.max_bytes"
    )


def shown_comparison(comparison: Comparison, content: ContentMode) -> ShownComparison:
    """Return a comparison as it is shown; ``content`` is the setting of this worker."""
    return ShownComparison(
        identical=comparison.identical,
        a=comparison.a,
        b=comparison.b,
        settings=comparison.settings,
        tokens=comparison.tokens,
        tools=comparison.tools,
        history=comparison.history,
        messages=[
            ShownChange(
                role=change.role,
                block=change.block,
                a=change.a,
                b=change.b,
                added=_count(change.lines, "+"),
                removed=_count(change.lines, "-"),
                lines=change.lines if content == "full" else None,
            )
            for change in comparison.messages
        ],
        warnings_a=comparison.warnings_a,
        warnings_b=comparison.warnings_b,
        content=content,
    )


def _count(lines: Sequence[str] | None, sign: str) -> int | None:
    return None if lines is None else sum(line.startswith(sign) for line in lines)
