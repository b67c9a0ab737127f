"""Plan a build: the options of the request, the configured defaults, and the token limits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from math import ceil
from typing import Final, Literal

from formatters.guard import Guard, guard_for
from formatters.model import MemoryView
from formatters.times import parse_minutes_west, parse_timestamp, to_local_time
from service.budget.groups import Strategy
from service.budget.limits import ModelLimits, Models, longest_known_prefix, lookup
from service.budget.strategy_names import UnknownStrategyError, read_strategy
from service.config.settings import BudgetSettings, ModelLimit, Settings
from service.errors import InvalidRequestError, Problem, did_you_mean, shown
from service.ports.stores import STORED_CHARS
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord

#: Limit of the unknown keys that warnings list.
MAX_UNKNOWN_KEYS: Final = 20
#: The offset if the client's is invalid, in minutes west of UTC.
UTC_OFFSET: Final = 0
#: The limit for a model that is not in the table.
UNKNOWN_MODEL_LIMIT: Final = 100_000
#: Limit and reserve if neither a model nor a limit is given (the source system's defaults).
DEFAULT_LIMIT: Final = 8_000
DEFAULT_RESERVE: Final = 2_000
#: The share of a limit that a context may use if no reserve is set.
USABLE_SHARE: Final = 0.8
#: The share of the available tokens that a search for tools may take at most: its result is in the
#: newest messages of a run, which aren't left out.
SEARCH_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The context window of a build, in tokens."""

    limit: int
    available: int
    #: Whether the reserve is the same for every limit, and not a share of it.
    fixed_reserve: bool
    warnings: tuple[WarningRecord, ...] = ()

    @property
    def reserve(self) -> int:
        """Return the tokens that are kept free."""
        return self.limit - self.available

    def limit_for(self, available: int) -> int:
        """Return the smallest limit that leaves this many tokens available."""
        return available + self.reserve if self.fixed_reserve else ceil(available / USABLE_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The choices of one build."""

    model: str | None
    #: The model's name in the configuration or the shipped table; None if it is in neither.
    known_model: str | None
    window: Window
    tokenizer: str
    #: False if the tokenizer only estimates the model's counts.
    exact: bool
    strategy: Strategy
    #: Limit of the tokens of all blocks that hold history; None for what the others leave.
    memory_tokens: int | None
    memory: MemoryView
    #: Limit of the tokens of the tools, array and block together; None for no limit.
    tools_tokens: int | None = None
    #: Limit of the tokens of what a search for tools finds; None if no tools are deferred.
    search_tokens: int | None = None
    layout: Literal["tagged", "chat"]
    #: The conversation whose history is read; None for all conversations of the owner.
    conversation_id: str | None
    #: The time of the request in the client's time zone.
    now: datetime
    explain: bool
    #: Whether the model gets the tool `recall`.
    recall_tool: bool = False
    #: The most tokens of a native tool result; None for no limit.
    offload_tokens: int | None = None
    #: Guards the texts of strangers.
    guard: Guard
    #: The identity of the request; None for the configured one.
    identity: str | None = None
    warnings: tuple[WarningRecord, ...]

    @property
    def reading_tokens(self) -> int | None:
        """Return how many tokens of history to read; None for all of it."""
        return None if self.strategy.reads_all else self.history_tokens

    @property
    def history_tokens(self) -> int | None:
        """Return the tokens of history that the budget holds; None if stores can't count them."""
        chars = self.memory.message_chars
        if chars is not None and chars < STORED_CHARS:
            return None
        return min(self.memory_tokens or self.window.available, self.window.available)


def make_plan(
    request: BuildRequest,
    settings: Settings,
    strategies: Mapping[str, Strategy],
    models: Models,
    received_at: datetime,
) -> Plan:
    """Plan a build; ``received_at`` is its time if the client sent none.

    ``models`` is the shipped table of token limits, without the settings' overrides.

    Raises:
        InvalidRequestError: The strategy is unknown, the reserve leaves no tokens, or an identity
            isn't allowed.
    """
    options, pointer, budget = request.options, request.options_pointer, settings.budget
    model = options.model or budget.model
    limits = limits_of(model, models, budget)
    token_window = compute_window(
        model,
        limits,
        budget.max_tokens if options.max_tokens is None else options.max_tokens,
        budget.reserve_tokens if options.reserve_tokens is None else options.reserve_tokens,
        pointer=f"{pointer}/reserve_tokens",
        meant="" if limits or model is None else _suggest(model, models, budget),
    )
    now, west, time_warnings = _local_time(request, received_at)
    zone = options.memory_timezone or settings.memory.timezone
    has_limit = "memory_limit" in options.model_fields_set
    strategy = budget.strategy if options.strategy is None else options.strategy
    ignored = islice(request.ignored_keys, MAX_UNKNOWN_KEYS)
    unknown = (_warning("unknown_key", problem.detail, problem.pointer) for problem in ignored)
    return Plan(
        model=model,
        known_model=longest_known_prefix(model, _entries(models, budget)) if model else None,
        window=token_window,
        tokenizer=limits.counter if limits else budget.tokenizer,
        exact=limits.exact if limits else model is None,
        strategy=_strategy(strategy, strategies, pointer),
        memory_tokens=options.memory_tokens,
        tools_tokens=_tools_tokens(request, settings, token_window),
        search_tokens=min(settings.tools.search_tokens, int(SEARCH_SHARE * token_window.available))
        if settings.tools.defer
        else None,
        memory=MemoryView(
            limit=options.memory_limit if has_limit else settings.memory.limit,
            message_chars=settings.memory.message_chars,
            tool_results=settings.memory.tool_results,
            tool_result_chars=settings.memory.tool_result_chars,
            minutes_west=west if zone == "client" else UTC_OFFSET,
            header=options.memory_header or settings.memory.header,
            assistant_name=settings.memory.assistant_name,
        ),
        layout=options.layout or "tagged",
        conversation_id=request.conversation_id if options.scope != "owner" else None,
        now=now,
        explain=bool(options.explain),
        recall_tool=settings.recall.tool if options.recall_tool is None else options.recall_tool,
        offload_tokens=settings.memory.offload_tokens,
        guard=_guard(settings, options.model),
        identity=_identity(request, settings),
        warnings=(*unknown, *token_window.warnings, *time_warnings),
    )


def _guard(settings: Settings, requested: str | None) -> Guard:
    """Return the guard of the configured model, or of all if a request names another one."""
    model = settings.budget.model if requested is None else None
    return guard_for(model, gutter=settings.guard == "gutter", role_marks=settings.role_marks)


def _suggest(model: str, models: Models, budget: BudgetSettings) -> str:
    """Suggest a model whose limit is known."""
    entries = _entries(models, budget).items()
    return did_you_mean(model, [name for name, limits in entries if limits.max_input])


def limits_of(model: str | None, models: Models, budget: BudgetSettings) -> ModelLimits | None:
    """Return a model's token limits by the settings and the shipped table; None if unknown or None.

    The entry with the longest matching prefix wins; of two equal ones, that of the settings.
    """
    if model is None:
        return None
    factors = {name.lower(): factor for name, factor in budget.estimate_factors.items()}
    entry, factor = lookup(model, _entries(models, budget)), lookup(model, factors)
    if entry is None and factor is None:
        return None
    unknown = ModelLimits(max_input=None, tokenizer=budget.tokenizer, exact=False)
    limits = lookup(model, models) or unknown
    if factor and not limits.exact:
        limits = replace(limits, factor=factor)
    return _override(entry, limits) if isinstance(entry, ModelLimit) else limits


def _entries(models: Models, budget: BudgetSettings) -> Mapping[str, ModelLimits | ModelLimit]:
    """Return the shipped limits by the start of a name, with those of the settings in place."""
    return {**models, **{name.lower(): row for name, row in budget.model_limits.items()}}


def _override(row: ModelLimit, limits: ModelLimits) -> ModelLimits:
    """Return limits with those of the settings in place.

    A configured tokenizer without a factor counts exactly as the model does.
    """
    return ModelLimits(
        max_input=row.max_input,
        max_output=row.max_output or limits.max_output,
        tokenizer=row.tokenizer or limits.tokenizer,
        factor=row.factor or (1.0 if row.tokenizer else limits.factor),
        exact=row.factor is None and (row.tokenizer is not None or limits.exact),
    )


def compute_window(
    model: str | None,
    limits: ModelLimits | None,
    max_tokens: int | None,
    reserve: int | None,
    pointer: str = "",
    meant: str = "",
) -> Window:
    """Return the window of a model with these ``limits`` (None if unknown).

    ``pointer`` is the place of the reserve in a request, empty if only the settings have one, and
    ``meant`` suggests a known model for an unknown one.

    Raises:
        InvalidRequestError: The reserve leaves nothing.
    """
    warnings: list[WarningRecord] = []
    known = limits.max_input if limits else None
    if model is None and max_tokens is None:
        limit, reserve = DEFAULT_LIMIT, DEFAULT_RESERVE if reserve is None else reserve
    elif known is None:
        limit = max_tokens or UNKNOWN_MODEL_LIMIT
        if model is not None:
            used = (
                f"the {limit} of max_tokens are used"
                if max_tokens
                else f"{limit} tokens are assumed"
            )
            detail = f"the limit of {shown(model)} is not known; {used}{meant}"
            warnings.append(_warning("unknown_model", detail))
    else:
        limit = min(max_tokens or known, known)
        if max_tokens and max_tokens > limit:
            warnings.append(_warning("limit_lowered", f"{model} accepts {limit} tokens at most"))
    if reserve is not None and reserve >= limit:
        name = "reserve_tokens, by default budget" if pointer else "budget"
        detail = (
            f"a reserve of {reserve} tokens leaves nothing of {limit}; lower {name}.reserve_tokens"
        )
        raise InvalidRequestError(detail, [Problem(pointer, detail)] if pointer else ())
    available = int(limit * USABLE_SHARE) if reserve is None else limit - reserve
    return Window(
        limit=limit,
        available=available,
        fixed_reserve=reserve is not None,
        warnings=tuple(warnings),
    )


def _tools_tokens(request: BuildRequest, settings: Settings, token_window: Window) -> int | None:
    if any(isinstance(tool, str) for tool in request.run.tools or ()):
        return None  # tools selected by name are all offered
    limit, share = request.options.tools_tokens, settings.budget.tools_share
    return int(share * token_window.available) if limit is None and share is not None else limit


def _strategy(spec: object, strategies: Mapping[str, Strategy], pointer: str) -> Strategy:
    if isinstance(spec, str) and spec in strategies:
        return strategies[spec]
    try:
        return read_strategy(spec, strategies)
    except UnknownStrategyError as error:
        problem = Problem(f"{pointer}/strategy{error.pointer}", str(error))
        raise InvalidRequestError(problem.detail, [problem]) from error


def _identity(request: BuildRequest, settings: Settings) -> str | None:
    identity = request.options.identity
    if identity is not None and not settings.prompts.allow_request_identity:
        detail = "the configuration doesn't allow an identity; see prompts.allow_request_identity"
        raise InvalidRequestError(detail, [Problem(f"{request.options_pointer}/identity", detail)])
    return identity


def _local_time(
    request: BuildRequest, received_at: datetime
) -> tuple[datetime, int, tuple[WarningRecord, ...]]:
    """Return the request's local time, the zone in minutes west of UTC, and warnings."""
    client, holder = request.run.metadata, request.options_pointer.removesuffix("/context")
    start = f"{holder}/client_" if holder.endswith("/metadata") else f"{holder}/"
    warnings: list[WarningRecord] = []
    sent_at = parse_timestamp(given := client.client_timestamp_utc)
    west = parse_minutes_west(offset := client.client_timezone_offset)
    if sent_at is None and given not in (None, ""):
        west = UTC_OFFSET
        detail = f"can't read {shown(given)}; write ISO 8601; the time of receipt, in UTC, is shown"
        warnings.append(_warning("unreadable_timestamp", detail, f"{start}timestamp_utc"))
    if west is None:
        west = UTC_OFFSET
        detail = f"can't read {shown(offset)}; write minutes west of UTC; the time is shown in UTC"
        warnings.append(_warning("unreadable_offset", detail, f"{start}timezone_offset"))
    return to_local_time(sent_at or received_at, west), west, tuple(warnings)


def _warning(code: str, detail: str, pointer: str | None = None) -> WarningRecord:
    return WarningRecord(code=code, pointer=pointer, detail=detail)
