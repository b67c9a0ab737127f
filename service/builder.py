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
from typing import Any, Final

from opentelemetry.trace import Tracer

from formatters.friends_info import friends_info
from formatters.model import Facts, Formatter
from formatters.rows import fix_surrogates
from formatters.this_moment import this_moment
from prompts.capabilities import capabilities
from prompts.identity import core_identity
from prompts.system_prompt import SystemPrompt
from service.aio import LARGE_TEXT
from service.budget.counting import count_function
from service.budget.fit_blocks import Budget, Fitted, fit_blocks
from service.budget.fit_recall import make_ranker
from service.budget.groups import Strategy
from service.budget.limits import Models
from service.budget.strategies.relevance import recalls
from service.budget.toolset import Toolset
from service.build.account import Built, assemble_response, build_span, describe_build
from service.build.after_answer import AfterAnswer
from service.build.blocks import format_blocks, history, work_size
from service.build.gather import Gathered, Sources, gather
from service.build.plan import Plan, make_plan
from service.build.tools import limit_tools
from service.config.settings import Settings
from service.errors import ContextBuilderError, InvalidRequestError
from service.observe.metrics import UNMEASURED, Metrics, timed
from service.observe.tracing import child_span, current_span, own_trace, record_failure
from service.ports.services import TokenCounter, Tokenizers
from service.ports.stores import HistoryStore
from service.recall.ranking import RANKING_STRATEGIES
from service.wire.request import BuildRequest, RejectedError, decode
from service.wire.response import BuildResponse, error_response, success_response

#: The blocks in their order. A request's own blocks precede the last one.
BLOCKS: Final[tuple[Formatter, ...]] = (
    core_identity,
    capabilities,
    history,
    friends_info,
    this_moment,
)


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a request, and the build behind it unless it is an error."""

    response: BuildResponse
    built: Built | None = None


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
    #: What is done with a build after its answer.
    after_answer: tuple[AfterAnswer, ...] = ()
    #: Records how long the parts of a build took.
    metrics: Metrics = UNMEASURED
    #: Starts the span of each build; None if no spans are collected.
    tracer: Tracer | None = None

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

    async def answer(self, request: BuildRequest) -> Answered:
        """Answer a request; the caller starts the work after the answer."""
        with build_span(self.tracer, request):
            try:
                built = await self.built(request)
            except ContextBuilderError as error:
                record_failure(current_span(), error)
                return Answered(error_response(request.envelope, error, self.clock(), own_trace()))
            describe_build(built)
            response = success_response(request.envelope, built.content, self.clock(), own_trace())
            return Answered(response, built)

    async def built(self, request: BuildRequest) -> Built:
        """Build a context; raises `ContextBuilderError` if there can be none."""
        received_at = request.received_at or self.clock()
        plan = make_plan(request, self.settings, self.strategies, self.models, received_at)
        with timed(self.metrics, "gather") as gathering:
            gathered = await gather(request, plan, self.sources, self.settings, self.metrics)
        prompt = self.sources.prompts.current if self.sources.prompts else SystemPrompt()
        facts = self._facts(request, plan, gathered, prompt)
        counter = self.tokenizers.counter(plan.tokenizer)
        trace = own_trace()

        def fit() -> Built:
            offered = _limit_tools(gathered, facts, plan, counter)
            past, tools = gathered.history, offered.toolset
            due = prompt.injector.due(past.messages, past.not_read, counter.count)
            shown = replace(facts, injections=due, tools=tools.tools)
            fitted = self._fit(shown, plan, counter, tools)
            with child_span("account"):
                content = assemble_response(request, plan, offered, fitted, counter)
            return Built(
                request=request,
                plan=plan,
                prompt=prompt,
                gathered=offered,
                fitted=fitted,
                content=content,
                trace=trace,
                seconds={"gather": gathering.seconds, "fit": fitting.seconds},
            )

        small = work_size(facts) + len(gathered.toolset.json) < LARGE_TEXT
        with timed(self.metrics, "fit") as fitting:
            return fit() if small else await asyncio.to_thread(fit)

    def _facts(
        self, request: BuildRequest, plan: Plan, gathered: Gathered, prompt: SystemPrompt
    ) -> Facts:
        past = gathered.history
        blocks = request.options.blocks or {}
        return Facts(
            current_input=fix_surrogates(request.current_input),
            identity=prompt.text(plan.identity),
            now=plan.now,
            history=past.messages,
            grouped=past.grouped,
            more_history=past.not_read > 0,
            starts=past.starts,
            summaries=gathered.summaries,
            tools=gathered.toolset.tools,
            profile=gathered.profile,
            default_profile=self.settings.user_defaults.prompts.friends_profile.content,
            blocks={tag: fix_surrogates(text) for tag, text in blocks.items()},
            run=gathered.run,
            layout=plan.layout,
            memory=plan.memory,
            recalls=recalls(plan.strategy),
        )

    def _fit(self, facts: Facts, plan: Plan, counter: TokenCounter, toolset: Toolset) -> Fitted:
        budget = Budget(
            available=plan.window.available,
            tools=toolset.tokens(counter),
            strategy=plan.strategy,
            memory=plan.memory_tokens,
            rank=make_ranker(plan.strategy, facts.current_input, plan.now),
        )
        with child_span("render"):
            tools_block = toolset.block(facts.tags, lambda: capabilities(facts))
            blocks = format_blocks(self.blocks, replace(facts, tools_block=tools_block))
        with child_span("choose"):
            return fit_blocks(blocks, budget, count_function(counter))

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
            request = decode(payload, received_at=self.clock())
        except RejectedError as rejected:
            if rejected.envelope is None:
                raise
            return error_response(rejected.envelope, rejected.error, self.clock())
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
        """Return the messages of a context; raises `ContextBuilderError` if there can be none."""
        content = {
            "current_input": current_input,
            "user_profile": user_profile,
            "timestamp_utc": timestamp_utc,
            "timezone_offset": timezone_offset,
        }
        request = {"owner_key": owner_key, "run_id": current_run_id or None, "content": content}
        return (await self.built(BuildRequest.model_validate(request))).content.messages


def _limit_tools(gathered: Gathered, facts: Facts, plan: Plan, counter: TokenCounter) -> Gathered:
    """Return what was gathered with the tools that fit into their share of the tokens."""
    if plan.tools_tokens is None:
        return gathered
    toolset, warning = limit_tools(gathered.toolset, facts, plan.tools_tokens, counter)
    warnings = (*gathered.warnings, warning) if warning else gathered.warnings
    return replace(gathered, toolset=toolset, warnings=warnings)
