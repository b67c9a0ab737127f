"""How a context is built, on one page: gather facts, show them as blocks, fit, account.

    request -> Plan -> gather -> Facts -> BLOCKS -> Block(entries) -> fit_blocks -> account

Everything behind `gather` is pure. To add a block, write a formatter and put it into `BLOCKS`; to
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
from formatters.shared_memory import shared_memory
from formatters.this_moment import this_moment
from prompts.capabilities import capabilities
from prompts.identity import core_identity
from prompts.system_prompt import SystemPrompt
from service.aio import LARGE_TEXT
from service.audit.reports import BuildReports
from service.budget.counting import counting
from service.budget.fit_blocks import Budget, Fitted, fit_blocks
from service.budget.fit_recall import ranking
from service.budget.groups import Strategy, recalls
from service.budget.limits import Models
from service.budget.toolset import Toolset
from service.build.blocks import arranged, weight
from service.build.gather import Gathered, Sources, gather
from service.build.plan import Plan, make_plan
from service.build.report import Built, account
from service.build.telemetry import building, built_as
from service.build.tool_share import with_tools_that_fit
from service.compaction.compactor import Compactor
from service.config.settings import Settings
from service.errors import ContextBuilderError, InvalidRequestError
from service.observe.metrics import UNMEASURED, Metrics, timed
from service.observe.tracing import carried, current, fail, is_traced, within
from service.ports.services import TokenCounter, Tokenizers
from service.ports.stores import HistoryStore
from service.recall.ranking import RANKING_STRATEGIES
from service.wire.protocol import (
    BuildRequest,
    BuildResponse,
    RejectedError,
    decode,
    failed,
    succeeded,
)

#: The blocks in their order. Blocks that a request brings along go before the last one.
BLOCKS: Final[tuple[Formatter, ...]] = (
    core_identity,
    capabilities,
    shared_memory,
    friends_info,
    this_moment,
)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request, and what its context was made of, where it is one."""

    response: BuildResponse
    built: Built | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBuilder:
    """Builds contexts from the facts that its sources hold."""

    sources: Sources
    tokenizers: Tokenizers
    #: Tells the moment of a request that came without one, and of each response.
    clock: Callable[[], datetime]
    settings: Settings = field(default_factory=Settings)
    blocks: Sequence[Formatter] = BLOCKS
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: RANKING_STRATEGIES)
    #: The table of limits; without it every model's limit is unknown.
    models: Models = field(default_factory=dict)
    #: Where `build` stores the reports of its builds.
    reports: BuildReports | None = None
    #: Told how long the parts of a build took.
    metrics: Metrics = UNMEASURED
    #: Begins the span of each build; None where nobody collects them.
    tracer: Tracer | None = None
    #: Makes the summaries that builds turn out to need, when their answers are out.
    compactor: Compactor | None = None

    @property
    def history(self) -> HistoryStore:
        """Return the store that histories are read from."""
        return self.sources.history

    async def build(self, request: BuildRequest) -> BuildResponse:
        """Answer a request with a context, or with the error that kept it from one."""
        answered = await self.answer(request)
        if answered.built and self.reports:
            await self.reports.store([answered.built])
        if self.compactor:
            self.compactor.keep(answered.built)
        return answered.response

    async def answer(self, request: BuildRequest) -> Answered:
        """Answer a request, and tell what the context was made of; files nothing."""
        with building(self.tracer, request):
            try:
                built = await self.built(request)
            except ContextBuilderError as error:
                fail(current(), error)
                return Answered(failed(request.envelope, error, self.clock()))
            built_as(built)
            return Answered(succeeded(request.envelope, built.content, self.clock()), built)

    async def built(self, request: BuildRequest) -> Built:
        """Build a context; raises `ContextBuilderError` where there is none."""
        receipt, traced = request.received_at or self.clock(), carried() if is_traced() else None
        plan = make_plan(request, self.settings, self.strategies, self.models, receipt)
        with timed(self.metrics, "gather") as gathering:
            gathered = await gather(request, plan, self.sources, self.settings, self.metrics)
        counter = self.tokenizers.counter(plan.tokenizer)
        prompt = self.sources.prompts.current if self.sources.prompts else SystemPrompt()
        facts = replace(self._facts(request, plan, gathered), identity=prompt.text(plan.identity))

        def finish() -> Built:
            fitting, told = with_tools_that_fit(gathered, facts, plan.tools_tokens, counter)
            past = gathered.history
            due = prompt.injector.due(past.messages, past.not_read, counter.count)
            fitted = self._fit(replace(told, injections=due), plan, counter, fitting.toolset)
            with within("account"):
                content = account(request, plan, fitting, fitted, counter)
            return Built(
                request=request,
                plan=plan,
                prompt=prompt,
                gathered=fitting,
                fitted=fitted,
                content=content,
                traced=traced,
                seconds={"gather": gathering.seconds, "fit": choosing.seconds},
            )

        small = weight(facts) + len(gathered.toolset.json) < LARGE_TEXT
        with timed(self.metrics, "fit") as choosing:
            return finish() if small else await asyncio.to_thread(finish)

    def _facts(self, request: BuildRequest, plan: Plan, gathered: Gathered) -> Facts:
        defaults = self.settings.user_defaults.prompts.friends_profile
        blocks = request.options.blocks or {}
        return Facts(
            current_input=fix_surrogates(request.current_input),
            now=plan.now,
            history=gathered.history.messages,
            more_history=gathered.history.not_read > 0,
            starts=gathered.history.starts,
            summaries=gathered.summaries,
            tools=gathered.toolset.tools,
            profile=gathered.profile,
            default_profile=defaults.content,
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
            rank=ranking(plan.strategy, facts.current_input, plan.now),
        )
        with within("render"):
            blocks = arranged(self.blocks, facts, toolset)
        with within("choose"):
            return fit_blocks(blocks, budget, counting(counter))

    async def handle_build_request(self, message: Mapping[str, object]) -> BuildResponse:
        """Answer a message as it stands on the bus.

        Raises:
            RejectedError: It is no JSON, or has no readable id and owner, so that nobody can be
                answered.
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
            return failed(rejected.envelope, rejected.error, self.clock())
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
        """Return the messages of a context; raises `ContextBuilderError` where there is none."""
        content = {
            "current_input": current_input,
            "user_profile": user_profile,
            "timestamp_utc": timestamp_utc,
            "timezone_offset": timezone_offset,
        }
        named = {"owner_key": owner_key, "run_id": current_run_id or None, "content": content}
        return (await self.built(BuildRequest.model_validate(named))).content.messages
