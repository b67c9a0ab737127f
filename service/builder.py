"""How a context is built, on one page: plan, gather, format, fit, report.

    BuildRequest -> Plan -> gather -> Facts -> BLOCKS -> Block(entries) -> fit -> BuildSuccess

Everything after `gather` is pure. To add a block, write a formatter and add it to `BLOCKS`; to
add a strategy, see `service.budget.strategies`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from cachetools import LRUCache
from opentelemetry.trace import Tracer

from formatters.custom import custom
from formatters.friends_info import friends_info
from formatters.model import Block, Facts, Formatter, PreviewLimit, join_blocks
from formatters.native import native_history, run_so_far
from formatters.recalled import recalled
from formatters.shared_memory import shared_memory
from formatters.this_moment import this_moment
from prompts.capabilities import capabilities
from prompts.summary import list_summary_forms
from prompts.system_prompt import SystemPrompt, core_identity
from service.aio import LARGE_TEXT
from service.audit.report_store import find_report
from service.audit.reports import BUILD_ID, find_reported
from service.budget.counting import count_function
from service.budget.fit_blocks import Budget, Fitted, fit_blocks
from service.budget.groups import Strategy
from service.budget.limits import Models
from service.build.account import (
    Built,
    ShownRows,
    assemble_response,
    build_span,
    describe_build,
    find_not_shown,
    find_shown,
    most_not_shown,
    recall_span,
)
from service.build.after_answer import AfterAnswer
from service.build.fetch import Fetching, as_build
from service.build.gather import Gathered, Gathering, Sources, make_facts, work_size
from service.build.plan import Plan, make_plan
from service.build.tool_search import ToolSearch
from service.build.tools import Toolset, find_recall_conflict, offer_tools
from service.config.settings import Settings
from service.errors import BudgetExceededError, ContextBuilderError, InvalidRequestError
from service.observe.metrics import UNMEASURED, Metrics, timed
from service.observe.tracing import child_span, current_span, own_trace, record_failure
from service.ports.bus import ReportStore
from service.ports.services import TokenCounter, Tokenizers
from service.ports.stores import HistoryStore
from service.recall.ranking import RANKING_STRATEGIES
from service.wire.recall import RecallRequest, RecallResponse, RecallSuccess
from service.wire.request import BuildRequest, RejectedError, decode
from service.wire.response import BuildResponse, WarningRecord, error_response, make_response


def history(facts: Facts) -> Block:
    """Format the history as the layout shows it, with the summaries that may replace rows."""
    block = native_history(facts) if facts.layout == "chat" else shared_memory(facts)
    return replace(block, forms=list_summary_forms(facts, block)) if facts.summaries else block


#: The blocks in their order. A request's own blocks precede the last one.
BLOCKS: Final[tuple[Formatter, ...]] = (
    core_identity,
    capabilities,
    history,
    friends_info,
    this_moment,
)


#: By owner and build id, the rows that a build showed.
ShownByBuild = LRUCache[tuple[str, str], ShownRows]
#: How many builds a builder remembers with their shown rows, for recalls to exclude.
MAX_SHOWN: Final = 256


R_co = TypeVar("R_co", bound=BuildResponse | RecallResponse, covariant=True)


@dataclass(frozen=True, slots=True)
class Answered(Generic[R_co]):
    """The response to a request, with its build unless it is an error or a recall."""

    response: R_co
    built: Built | None = None
    #: The error that prevented the build; None for a stored error.
    error: ContextBuilderError | None = None

    def with_warning(
        self: "Answered[BuildResponse]", warning: WarningRecord
    ) -> "Answered[BuildResponse]":
        """Return the answer of a build with another warning."""
        if self.built is None:
            return self
        warnings = [*self.built.content.warnings, warning]
        content = self.built.content.model_copy(update={"warnings": warnings})
        response = self.response.model_copy(update={"content": content})
        return Answered(response, replace(self.built, content=content))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBuilder:
    """Builds contexts from the facts that its sources hold."""

    sources: Sources
    tokenizers: Tokenizers
    #: Returns the current time: of requests that have none, and of each response.
    clock: Callable[[], datetime]
    settings: Settings = field(default_factory=Settings)
    blocks: Sequence[Formatter] = BLOCKS
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: RANKING_STRATEGIES)
    #: The table of token limits; without it the limit of every model is unknown.
    models: Models = field(default_factory=dict)
    #: The work on a build after its answer.
    after_answer: tuple[AfterAnswer, ...] = ()
    #: Records how long the parts of a build took.
    metrics: Metrics = UNMEASURED
    #: Starts the span of each build; None if no spans are collected.
    tracer: Tracer | None = None
    #: Holds the reports of all workers' builds; None without a bus.
    reports: ReportStore | None = None
    shown: ShownByBuild = field(default_factory=partial(ShownByBuild, MAX_SHOWN))

    @property
    def history(self) -> HistoryStore:
        """Return the store that histories are read from."""
        return self.sources.history

    async def build(self, request: BuildRequest) -> BuildResponse:
        """Answer a request with a context, or with the error that prevented it."""
        answered = await self.answer(request)
        if answered.built:
            for work in self.after_answer:
                work.keep(answered.built)
        return answered.response

    async def answer(self, request: BuildRequest) -> Answered[BuildResponse]:
        """Answer a request, and leave the background work after the answer to the caller.

        Raises:
            InvalidRequestError: It is a mapping, or something else that isn't a `BuildRequest`.
        """
        if not isinstance(request, BuildRequest):
            kind, fix = type(request).__name__, "BuildRequest.model_validate(…) makes one of a dict"
            raise InvalidRequestError(f"a request has to be a BuildRequest, not {kind}; {fix}")
        with build_span(self.tracer, request):
            try:
                built = await self.build_or_raise(request)
            except ContextBuilderError as error:
                record_failure(current_span(), error)
                at = self.clock()
                response = error_response(BuildResponse, request.envelope, error, at, own_trace())
                return Answered(response, error=error)
            describe_build(built)
            self.shown[request.owner_key, built.content.build_id] = find_shown(built)
            response = make_response(
                BuildResponse, request.envelope, built.content, self.clock(), own_trace()
            )
            return Answered(response, built)

    async def build_or_raise(self, request: BuildRequest) -> Built:
        """Return a whole build; raises `ContextBuilderError` if there can be no context."""
        received_at = request.received_at or self.clock()
        plan = make_plan(request, self.settings, self.strategies, self.models, received_at)
        started = perf_counter()
        with timed(self.metrics, "gather"):
            reads = Gathering(request, plan, self.sources, self.settings, self.metrics)
            gathered = await reads.gather()
        gathered_at = perf_counter()
        prompt = self.sources.prompts.current if self.sources.prompts else SystemPrompt()
        facts = make_facts(request, plan, gathered, prompt, self.settings)
        counter, trace = self.tokenizers.counter(plan.tokenizer), own_trace()

        def fit() -> Built:
            due = prompt.injector.due(
                gathered.history.messages, gathered.history.not_read, counter.count
            )
            known = replace(facts, injections=due) if due else facts
            offered, shown = _offer(request, gathered, known, plan, counter)
            fitted = self._fit(shown, plan, counter, offered.toolset)
            if shown.recall_tool:
                moment = replace(shown, not_shown=find_not_shown(offered, fitted, facts.unstored))
                fitted = fitted.with_block(self.blocks[-1](moment), count_function(counter))
            with child_span("account"):
                content = assemble_response(request, plan, offered, fitted, counter)
            return Built(
                request=request,
                plan=plan,
                gathered=offered,
                fitted=fitted,
                content=content,
                trace=trace,
                seconds={"gather": gathered_at - started, "fit": perf_counter() - gathered_at},
            )

        small = work_size(facts) + gathered.toolset.size < LARGE_TEXT
        with timed(self.metrics, "fit"):
            return fit() if small else await asyncio.to_thread(fit)

    def _fit(self, facts: Facts, plan: Plan, counter: TokenCounter, toolset: Toolset) -> Fitted:
        budget = Budget(
            available=plan.window.available,
            tools=toolset.tokens(counter),
            tools_chosen=toolset.chosen,
            strategy=plan.strategy,
            memory=plan.memory_tokens,
            question=facts.current_input,
            now=plan.now,
            explain=plan.explain,
        )
        with child_span("render"):
            blocks = format_blocks(self.blocks, facts)
        with child_span("choose"):
            try:
                return fit_blocks(blocks, budget, count_function(counter))
            except BudgetExceededError as error:
                least = plan.window.limit_for(error.needed or 0)
                # with more tokens there may be more tools, and a longer line on what isn't shown
                grows = plan.recall_tool or plan.tools_tokens is not None
                about = "about " if grows else ""
                detail = (
                    f"{error.detail}; max_tokens and the model's limit have to be at least"
                    f" {about}{least}"
                )
                needed, available = error.needed, error.available
                raise BudgetExceededError(detail, needed=needed, available=available) from error

    async def recall(self, request: RecallRequest) -> RecallResponse:
        """Answer a recall with earlier messages, or with the error that prevented it."""
        return (await self.answer_recall(request)).response

    async def answer_recall(self, request: RecallRequest) -> Answered[RecallResponse]:
        """Answer a recall as `answer` answers a request."""
        if not isinstance(request, RecallRequest):
            kind, fix = type(request).__name__, "RecallRequest.model_validate(…) makes one"
            raise InvalidRequestError(f"a recall has to be a RecallRequest, not {kind}; {fix}")
        with recall_span(self.tracer, request):
            try:
                content = await self._recall(request)
            except ContextBuilderError as error:
                record_failure(current_span(), error)
                at = self.clock()
                response = error_response(RecallResponse, request.envelope, error, at, own_trace())
                return Answered(response, error=error)
            at = self.clock()
            return Answered(
                make_response(RecallResponse, request.envelope, content, at, own_trace())
            )

    async def _recall(self, request: RecallRequest) -> RecallSuccess:
        settings, build_id = self.settings, request.content.exclude_build
        max_tokens = request.content.max_tokens or settings.recall.max_tokens
        build = as_build(request, max_tokens)
        received_at = request.received_at or self.clock()
        plan = make_plan(build, settings, self.strategies, self.models, received_at)
        excluded = await self._find_shown(request.owner_key, build_id) if build_id else ShownRows()
        with timed(self.metrics, "recall"):
            content = await Fetching(
                request=request,
                build=build,
                plan=plan,
                sources=self.sources,
                settings=settings,
                counter=self.tokenizers.counter(plan.tokenizer),
                metrics=self.metrics,
                excluded=excluded or ShownRows(),
                max_tokens=max_tokens,
            ).fetch()
        if excluded is not None:
            return content
        detail = "its report has expired, or it is no build of this owner; nothing is excluded"
        warning = WarningRecord(
            code="unknown_build", pointer="/content/exclude_build", detail=detail
        )
        return content.model_copy(update={"warnings": [*content.warnings, warning]})

    async def _find_shown(self, owner_key: str, build_id: str) -> ShownRows | None:
        """Return the rows that an owner's build showed; None if that isn't known."""
        shown: ShownRows | None = self.shown.get((owner_key, build_id))
        if shown is None and self.reports and BUILD_ID.fullmatch(build_id):
            report = await find_report(self.reports, build_id)
            if report and report.request.owner_key == owner_key:
                return find_reported(report)
        return shown

    async def handle_build_request(self, message: Mapping[str, object]) -> BuildResponse:
        """Answer a message in the form that it has on the bus.

        Raises:
            RejectedError: It isn't JSON, or has no readable id and owner to answer.
        """
        try:
            payload = json.dumps(message, default=str).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RejectedError(InvalidRequestError(f"not JSON: {error}"), None) from error
        try:
            # of any size: nobody else's bytes, and escapes would count
            request = decode(payload, received_at=self.clock(), max_bytes=len(payload))
        except RejectedError as rejected:
            if rejected.envelope is None:
                raise
            return error_response(BuildResponse, rejected.envelope, rejected.error, self.clock())
        return await self.build(request)

    async def build_context(
        self,
        owner_key: str,
        user_profile: Mapping[str, object] | None,
        current_input: str,
        timestamp_utc: str = "",
        timezone_offset: int | str = 0,
        current_run_id: str = "",
    ) -> list[dict[str, Any]]:
        """Return the messages of a context; without a timestamp none has a ``<current_time>``.

        Raises:
            ContextBuilderError: There can be no context.
        """
        builder, (*blocks, moment) = self, self.blocks
        if not timestamp_utc:
            builder = replace(self, blocks=(*blocks, lambda f: moment(replace(f, now=None))))
        content = {
            "current_input": current_input,
            "user_profile": user_profile,
            "timestamp_utc": timestamp_utc,
            "timezone_offset": timezone_offset,
        }
        request = {"owner_key": owner_key, "run_id": current_run_id or None, "content": content}
        built = await builder.build_or_raise(BuildRequest.model_validate(request))
        return built.content.messages


def format_blocks(formatters: Sequence[Formatter], facts: Facts) -> tuple[Block, ...]:
    """Format facts as blocks: the current input last but for the run that followed it.

    The request's blocks and the recalled rows precede the block of the last formatter. In the
    chat layout the texts of strangers share a user's message before the history: none of them is
    in the system message.
    """
    *leading, moment = (format_block(facts) for format_block in formatters)
    texts = [block for block in leading if block.has_text and not block.native]
    native = [block for block in leading if block.native]
    texts += custom(facts) if facts.blocks else ()
    if facts.layout == "chat":
        own = [block for block in texts if block.role == "system"]
        others = [block for block in texts if block.role != "system"]
        texts = [*join_blocks(own), *join_blocks(others)]
    blocks = (*texts, *native, *([recalled(facts)] if facts.recalls else ()), moment)
    return (*blocks, run_so_far(facts, next(iter(native), None))) if facts.run else blocks


def _offer(
    request: BuildRequest, gathered: Gathered, facts: Facts, plan: Plan, counter: TokenCounter
) -> tuple[Gathered, Facts]:
    """Return what was gathered with the tools to offer, and the facts with what depends on them.

    With the tool `recall`, there has to be room for the longest line on what isn't shown.
    """
    warnings = [*gathered.warnings]
    conflict = find_recall_conflict(request, gathered.toolset) if plan.recall_tool else None
    if conflict:
        warnings.append(WarningRecord(code="recall_not_offered", detail=conflict))
    elif plan.recall_tool:
        facts = replace(facts, recall_tool=True, not_shown=most_not_shown(gathered))
    if plan.offload_tokens is not None:
        offload = PreviewLimit(plan.offload_tokens, count_function(counter))
        facts = replace(facts, offload=offload)
    toolset, warning = offer_tools(gathered.toolset, facts, plan.tools_tokens, counter)
    warnings += [warning] if warning else []
    if toolset.deferred and plan.search_tokens is not None:
        facts = replace(facts, answer_call=ToolSearch(toolset, plan.search_tokens, counter))
    offered = replace(gathered, toolset=toolset, warnings=tuple(warnings))
    return offered, replace(facts, tools=toolset.tools, tools_block=toolset.block(facts))
