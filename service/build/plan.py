"""Plan a build: the options of the request, the configured defaults, and the token limits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from formatters.model import MemoryView
from formatters.times import parse_minutes_west, parse_timestamp, to_local_time
from service.budget.groups import Strategy
from service.budget.limits import (
    ModelLimits,
    Models,
    Window,
    compute_window,
    longest_known_prefix,
    lookup,
)
from service.budget.strategy_names import UnknownStrategyError, read_strategy
from service.config.settings import BudgetSettings, ModelLimit, Settings
from service.errors import InvalidRequestError, Problem
from service.wire.request import BuildRequest, RunMetadata
from service.wire.response import WarningRecord

#: Characters per message for which stores count tokens. If fewer are shown, more messages fit than
#: these counts suggest.
STORED_CHARS: Final = 500
#: Limit of the unknown keys that warnings list.
MAX_UNKNOWN_KEYS: Final = 20
#: The offset if the client's is invalid, in minutes west of UTC.
UTC_OFFSET: Final = 0


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
    layout: Literal["tagged", "chat"]
    #: The conversation whose history is read; None for all conversations of the owner.
    conversation_id: str | None
    #: The time of the request in the client's time zone.
    now: datetime
    explain: bool
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
    options, pointer = request.options, request.options_pointer
    model = options.model or settings.budget.model
    limits = limits_of(model, models, settings.budget) if model else None
    token_window = _window(request, settings, model, limits)
    now, west, time_warnings = _local_time(request.run.metadata, received_at)
    zone = options.memory_timezone or settings.memory.timezone
    has_limit = "memory_limit" in options.model_fields_set
    strategy = settings.budget.strategy if options.strategy is None else options.strategy
    pointers = request.unknown_keys[:MAX_UNKNOWN_KEYS]
    unknown = (_warning("unknown_key", "is unknown and ignored", pointer) for pointer in pointers)
    return Plan(
        model=model,
        known_model=_known_model(model, models, settings.budget) if model else None,
        window=token_window,
        tokenizer=limits.counter if limits else settings.budget.tokenizer,
        exact=limits.exact if limits else model is None,
        strategy=_strategy(strategy, strategies, pointer),
        memory_tokens=options.memory_tokens,
        tools_tokens=_tools_tokens(request, settings, token_window),
        memory=MemoryView(
            limit=options.memory_limit if has_limit else settings.memory.limit,
            message_chars=settings.memory.message_chars,
            minutes_west=west if zone == "client" else UTC_OFFSET,
            header=options.memory_header or settings.memory.header,
        ),
        layout=options.layout or "tagged",
        conversation_id=request.conversation_id if options.scope != "owner" else None,
        now=now,
        explain=bool(options.explain),
        identity=_identity(request, settings),
        warnings=(
            *unknown,
            *(_warning(code, detail) for code, detail in token_window.warnings),
            *time_warnings,
        ),
    )


def limits_of(model: str, models: Models, budget: BudgetSettings) -> ModelLimits | None:
    """Return a model's token limits by the settings and the shipped table; None if unknown.

    The entry with the longest matching prefix wins; of two equal ones, that of the settings.
    """
    rows = {name.lower(): row for name, row in budget.model_limits.items()}
    factors = {name.lower(): factor for name, factor in budget.estimate_factors.items()}
    entry, factor = lookup(model, {**models, **rows}), lookup(model, factors)
    if entry is None and factor is None:
        return None
    unknown = ModelLimits(max_input=None, tokenizer=budget.tokenizer, exact=False)
    limits = lookup(model, models) or unknown
    if factor and not limits.exact:
        limits = replace(limits, factor=factor)
    return _override(entry, limits) if isinstance(entry, ModelLimit) else limits


def _known_model(model: str, models: Models, budget: BudgetSettings) -> str | None:
    configured = {name.lower() for name in budget.model_limits}
    names = filter(
        None, (longest_known_prefix(model, configured), longest_known_prefix(model, models))
    )
    return max(names, key=len, default=None)


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


def _window(
    request: BuildRequest, settings: Settings, model: str | None, limits: ModelLimits | None
) -> Window:
    options, defaults = request.options, settings.budget
    reserve = options.reserve_tokens
    try:
        return compute_window(
            model,
            limits,
            defaults.max_tokens if options.max_tokens is None else options.max_tokens,
            defaults.reserve_tokens if reserve is None else reserve,
        )
    except InvalidRequestError as error:
        pointer = f"{request.options_pointer}/reserve_tokens"
        raise InvalidRequestError(error.detail, [Problem(pointer, error.detail)]) from error


def _tools_tokens(request: BuildRequest, settings: Settings, token_window: Window) -> int | None:
    if any(isinstance(tool, str) for tool in request.run.tools or ()):
        return None  # tools selected by name are all offered
    limit, share = request.options.tools_tokens, settings.budget.tools_share
    return int(share * token_window.available) if limit is None and share is not None else limit


def _strategy(spec: object, strategies: Mapping[str, Strategy], pointer: str) -> Strategy:
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
    client: RunMetadata, received_at: datetime
) -> tuple[datetime, int, tuple[WarningRecord, ...]]:
    """Return the request's local time, the zone in minutes west of UTC, and warnings."""
    warnings: list[WarningRecord] = []
    sent_at = parse_timestamp(client.client_timestamp_utc)
    west = parse_minutes_west(client.client_timezone_offset)
    if sent_at is None and client.client_timestamp_utc not in (None, ""):
        west = UTC_OFFSET
        warnings.append(_warning("unreadable_timestamp", "the time of receipt, in UTC, is shown"))
    if west is None:
        west = UTC_OFFSET
        warnings.append(_warning("unreadable_offset", "the time is shown in UTC"))
    return to_local_time(sent_at or received_at, west), west, tuple(warnings)


def _warning(code: str, detail: str, pointer: str | None = None) -> WarningRecord:
    return WarningRecord(code=code, pointer=pointer, detail=detail)
