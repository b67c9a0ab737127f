"""What is shown of builds: answers over HTTP, with or without what people said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from service.audit.compare import Change, Comparison, HistoryChange, NameChanges, block_of
from service.audit.manifest import Manifest
from service.budget.decisions import PRESENT, Decision, Outcome
from service.build.report import HISTORY_BLOCKS, Built, decided, record
from service.http.recent_builds import Held
from service.wire.response import BuildSuccess, DecisionRecord, Usage, WarningRecord

Content = Literal["redacted", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A build in a line."""

    build_id: str
    #: When it was built; of one that another worker built, the moment of its request.
    at: datetime
    request_id: str
    run_id: str
    conversation_id: str | None
    model: str | None
    strategy: str
    #: Tokens: of the context, of the room there was for it, and of the model's whole window.
    total: int
    available: int
    budget: int
    utilization: float
    kept: int
    dropped: int
    #: Codes.
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message that was sent; without its words where content is redacted or not kept."""

    role: str
    #: The tag that it opens with, if any.
    block: str | None
    #: Null where it isn't known any more.
    characters: int | None = None
    #: The whole message, in OpenAI's form.
    message: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBuild:
    """A build with its account."""

    summary: Summary
    usage: Usage
    #: The strategy's name with its parameters.
    strategy: Mapping[str, Any]
    decisions: Sequence[DecisionRecord]
    messages: Sequence[ShownMessage]
    #: Names.
    tools: Sequence[str]
    #: Without details where another worker built it.
    warnings: Sequence[WarningRecord]
    #: ``memory`` of the worker that is asked, or the ``manifest`` on the bus.
    source: Literal["memory", "manifest"]
    content: Content
    #: Why messages are not shown, where that has another reason than the settings.
    unavailable: str | None = None
    #: Milliseconds that gathering and fitting took; null where another worker built it.
    timings: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForm:
    """A context as the body of a provider's call."""

    format: str
    #: Null where content is redacted, or not there any more.
    body: Mapping[str, Any] | None
    content: Content
    unavailable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A message that only one build sends, or that both send with other words."""

    role: str
    block: str | None
    #: Its place in ``messages``, from 0; null where it isn't sent.
    a: int | None
    b: int | None
    #: How many lines only b has, and only a.
    added: int
    removed: int
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
    content: Content


def summary_of(held: Held) -> Summary:
    """Return a build that is kept, in a line."""
    built = held.built
    return _summary(built, held.at)


def shown_build(
    built: Built, at: datetime, strategy: Mapping[str, Any], shows: Content
) -> ShownBuild:
    """Return a build whose contents are there."""
    content = built.content
    return ShownBuild(
        summary=_summary(built, at),
        usage=content.usage,
        strategy=strategy,
        decisions=decisions_of(built),
        messages=shown_messages(content, shows),
        tools=[str(tool["function"].get("name")) for tool in content.tools],
        warnings=content.warnings,
        source="memory",
        content=shows,
        timings={part: round(took * 1000, 3) for part, took in built.seconds.items()},
    )


def shown_manifest(manifest: Manifest, shows: Content) -> ShownBuild:
    """Return a build of which the manifest is all that is there."""
    layout = str(manifest.request.options.get("layout") or "tagged")
    block = HISTORY_BLOCKS[layout]
    decisions = [
        Decision((each.id,), block, cast(Outcome, each.decision), str(each.reason))
        for each in manifest.candidates
        if each.decision
    ]
    return ShownBuild(
        summary=_manifest_summary(manifest),
        usage=manifest.usage,
        strategy=manifest.strategy,
        decisions=[record(decision) for decision in decisions],
        messages=[ShownMessage(role=each.role, block=each.block) for each in manifest.messages],
        tools=list(manifest.tools),
        warnings=[WarningRecord(code=code, detail="") for code in manifest.warnings],
        source="manifest",
        content=shows,
    )


def explained(built: Built) -> BuildSuccess:
    """Return what a build came to, with all decisions, whether or not they were asked for."""
    return built.content.model_copy(update={"decisions": decisions_of(built)})


def decisions_of(built: Built) -> list[DecisionRecord]:
    """Return all decisions of a build."""
    return [record(each) for each in decided(built.plan, built.gathered, built.fitted)]


def shown_messages(content: BuildSuccess, shows: Content) -> list[ShownMessage]:
    """Return the messages of a context."""
    return [
        ShownMessage(
            role=str(message.get("role")),
            block=block_of(message),
            characters=len(str(message.get("content") or "")),
            message=message if shows == "full" else None,
        )
        for message in content.messages
    ]


def shown_comparison(found: Comparison, names: tuple[str, str], shows: Content) -> ShownComparison:
    """Return a comparison of two builds under the ids that they are known by."""
    return ShownComparison(
        identical=found.identical,
        a=names[0],
        b=names[1],
        settings=found.settings,
        tokens=found.tokens,
        tools=found.tools,
        history=found.history,
        messages=[
            ShownChange(
                role=each.role,
                block=each.block,
                a=each.a,
                b=each.b,
                added=sum(line.startswith("+") for line in each.lines),
                removed=sum(line.startswith("-") for line in each.lines),
                lines=each.lines if shows == "full" else None,
            )
            for each in found.messages
        ],
        warnings_a=found.warnings_a,
        warnings_b=found.warnings_b,
        content=shows,
    )


def _summary(built: Built, at: datetime) -> Summary:
    request, content, usage = built.request, built.content, built.content.usage
    return Summary(
        build_id=content.build_id,
        at=at,
        request_id=request.id,
        run_id=request.run_id,
        conversation_id=request.conversation_id,
        model=usage.model,
        strategy=built.plan.strategy.name,
        total=usage.total,
        available=usage.available,
        budget=usage.budget,
        utilization=usage.utilization,
        kept=content.kept,
        dropped=content.dropped,
        warnings=[warning.code for warning in content.warnings],
    )


def _manifest_summary(manifest: Manifest) -> Summary:
    request, usage = manifest.request, manifest.usage
    kept = sum(candidate.decision in PRESENT for candidate in manifest.candidates)
    return Summary(
        build_id=manifest.build_id,
        at=request.now,
        request_id=request.id,
        run_id=request.run_id,
        conversation_id=request.conversation_id,
        model=usage.model,
        strategy=str(manifest.strategy.get("name")),
        total=usage.total,
        available=usage.available,
        budget=usage.budget,
        utilization=usage.utilization,
        kept=kept,
        dropped=len(manifest.candidates) - kept,
        warnings=manifest.warnings,
    )
