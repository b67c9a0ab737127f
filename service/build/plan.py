"""What one build will do: the request's wishes, the configuration's defaults, and the limits."""

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

#: Characters a message for which stores keep the tokens that history takes; with fewer shown, more
#: messages fit than those tokens tell.
STORED_CHARS: Final = 500
#: Keys without a meaning that are named at most.
NAMED_KEYS: Final = 20
#: Read as the offset where the client sent one that can't be used.
UTC_OFFSET: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settled choices of one build."""

    model: str | None
    #: The name under which the tables know it, theirs or the configuration's; None for others.
    known_model: str | None
    window: Window
    tokenizer: str
    #: False where the tokenizer only estimates what the model counts.
    exact: bool
    strategy: Strategy
    #: Tokens for all that holds history; None for what the rest leaves.
    memory_tokens: int | None
    memory: MemoryView
    #: Tokens for array and block of the tools together; None for as many as there are tools.
    tools_tokens: int | None = None
    layout: Literal["tagged", "chat"]
    #: The conversation whose history is read; None for all of the owner's.
    conversation_id: str | None
    #: The moment of the request, in the client's zone.
    now: datetime
    explain: bool
    #: The request's own identity; None for the configured one.
    identity: str | None = None
    warnings: tuple[WarningRecord, ...]

    @property
    def reading_tokens(self) -> int | None:
        """Return how many tokens of history are worth reading; None for all of it."""
        return None if self.strategy.reads_all else self.history_tokens

    @property
    def history_tokens(self) -> int | None:
        """Return how many tokens of history the budget can hold; None where stores can't tell."""
        chars = self.memory.message_chars
        if chars is not None and chars < STORED_CHARS:
            return None
        return min(self.memory_tokens or self.window.available, self.window.available)


def make_plan(
    request: BuildRequest,
    settings: Settings,
    strategies: Mapping[str, Strategy],
    models: Models,
    receipt: datetime,
) -> Plan:
    """Settle a build; ``receipt`` is its moment where the client sent none.

    ``models`` is the shipped table, before anything that the settings say of a model.

    Raises:
        InvalidRequestError: The strategy is not known, the reserve leaves nothing, or there is an
            identity where none is allowed.
    """
    options, pointer = request.options, request.options_pointer
    model = options.model or settings.budget.model
    limits = limits_of(model, models, settings.budget) if model else None
    room = _window(request, settings, model, limits)
    now, west, odd_times = _moment(request.run.metadata, receipt)
    zone = options.memory_timezone or settings.memory.timezone
    limited = "memory_limit" in options.model_fields_set
    wanted = settings.budget.strategy if options.strategy is None else options.strategy
    pointers = request.unknown_keys[:NAMED_KEYS]
    unknown = (_warning("unknown_key", "means nothing here", pointer) for pointer in pointers)
    return Plan(
        model=model,
        known_model=_known(model, models, settings.budget) if model else None,
        window=room,
        tokenizer=limits.counter if limits else settings.budget.tokenizer,
        exact=limits.exact if limits else model is None,
        strategy=_strategy(wanted, strategies, pointer),
        memory_tokens=options.memory_tokens,
        tools_tokens=_tools_tokens(request, settings, room),
        memory=MemoryView(
            limit=options.memory_limit if limited else settings.memory.limit,
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
            *(_warning(code, detail) for code, detail in room.warnings),
            *odd_times,
        ),
    )


def limits_of(model: str, models: Models, budget: BudgetSettings) -> ModelLimits | None:
    """Return a model's limits by the settings and by the shipped table, or None.

    Of the names in both, the longest start of the model's counts, and of two alike the settings'.
    """
    rows = {name.lower(): row for name, row in budget.model_limits.items()}
    factors = {name.lower(): factor for name, factor in budget.estimate_factors.items()}
    found, factor = lookup(model, {**models, **rows}), lookup(model, factors)
    if found is None and factor is None:
        return None
    unknown = ModelLimits(max_input=None, tokenizer=budget.tokenizer, exact=False)
    limits = lookup(model, models) or unknown
    if factor and not limits.exact:
        limits = replace(limits, factor=factor)
    return _configured(found, limits) if isinstance(found, ModelLimit) else limits


def _known(model: str, models: Models, budget: BudgetSettings) -> str | None:
    configured = {name.lower() for name in budget.model_limits}
    names = filter(
        None, (longest_known_prefix(model, configured), longest_known_prefix(model, models))
    )
    return max(names, key=len, default=None)


def _configured(row: ModelLimit, limits: ModelLimits) -> ModelLimits:
    """Put a row of the settings over what is known of the model without it.

    Who names a tokenizer without a factor says that it counts as the model does.
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
        place = f"{request.options_pointer}/reserve_tokens"
        raise InvalidRequestError(error.detail, [Problem(place, error.detail)]) from error


def _tools_tokens(request: BuildRequest, settings: Settings, room: Window) -> int | None:
    if any(isinstance(tool, str) for tool in request.run.tools or ()):
        return None  # who names tools wants these
    asked, share = request.options.tools_tokens, settings.budget.tools_share
    return int(share * room.available) if asked is None and share is not None else asked


def _strategy(spec: object, strategies: Mapping[str, Strategy], pointer: str) -> Strategy:
    try:
        return read_strategy(spec, strategies)
    except UnknownStrategyError as error:
        problem = Problem(f"{pointer}/strategy{error.place}", str(error))
        raise InvalidRequestError(problem.detail, [problem]) from error


def _identity(request: BuildRequest, settings: Settings) -> str | None:
    identity = request.options.identity
    if identity is not None and not settings.prompts.allow_request_identity:
        detail = "the configuration allows requests no identity of their own"
        raise InvalidRequestError(detail, [Problem(f"{request.options_pointer}/identity", detail)])
    return identity


def _moment(
    client: RunMetadata, receipt: datetime
) -> tuple[datetime, int, tuple[WarningRecord, ...]]:
    """Return the request's moment in the client's zone, and that zone in minutes west of UTC."""
    warnings: list[WarningRecord] = []
    moment = parse_timestamp(client.client_timestamp_utc)
    west = parse_minutes_west(client.client_timezone_offset)
    if moment is None and client.client_timestamp_utc not in (None, ""):
        west = UTC_OFFSET
        warnings.append(_warning("unreadable_timestamp", "the time of receipt, in UTC, is shown"))
    if west is None:
        west = UTC_OFFSET
        warnings.append(_warning("unreadable_offset", "the time is shown in UTC"))
    return to_local_time(moment or receipt, west), west, tuple(warnings)


def _warning(code: str, detail: str, pointer: str | None = None) -> WarningRecord:
    return WarningRecord(code=code, pointer=pointer, detail=detail)
