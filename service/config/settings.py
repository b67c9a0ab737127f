"""All settings with their defaults and bounds; `service.config.load` fills them in.

`config.example.yml` describes each setting. Comments in the models add what programs need to know,
and describe the items of lists and mappings, which have no line there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from service.config.content import PromptsSettings, RecallSettings, SummariesSettings, ToolsSettings
from service.config.endpoints import (
    HealthSettings,
    HttpSettings,
    StoreSettings,
    TelemetrySettings,
    TlsSettings,
)
from service.config.presets import Preset, with_environment, with_preset
from service.config.section import (
    Count,
    Days,
    Factor,
    Milliseconds,
    Ratio,
    Seconds,
    SecondsOrZero,
    Section,
    StrategySpec,
    Text,
)

log = structlog.get_logger(__name__)

#: How the service's own topics and keys begin, after the bus prefix.
OWN_KEYS: Final = (
    "context.build.",
    "context.recall.",
    "llm.results",
    "tools.results",
    "history.import",
    "context.pruned",
    "context.summarized",
    "context.compacted",
)

#: How the names of consumers begin that are no workers, but hold requests that wait.
LANE_PREFIX: Final = "waiting:"

#: The place of a value that was passed in code.
ARGUMENT: Final = "argument"


class BusSettings(Section):
    """The server over which requests and responses go."""

    url: SecretStr | None = None
    prefix: str = ""
    lease_seconds: Seconds = 5.0
    heartbeat_seconds: Seconds = 1.0
    max_deliveries: Count = 3
    result_ttl_seconds: Seconds = 60.0
    #: Larger responses are sent but not stored; compressed size.
    result_max_bytes: Count = 1_048_576
    max_backlog: Count = 100_000
    reply_prefixes: tuple[Text, ...] = ("context.reply.",)
    reply_ttl_seconds: Seconds = 300.0
    default_timeout_ms: Milliseconds = 15_000
    max_payload_bytes: Count = 4_194_304
    socket_timeout_seconds: Seconds = 5.0
    tls: TlsSettings = TlsSettings()

    @field_validator("heartbeat_seconds")
    @classmethod
    def _check_heartbeat(cls, value: float, info: ValidationInfo) -> float:
        lease = info.data.get("lease_seconds")
        if lease is not None and value >= lease:
            raise ValueError(f"must be less than bus.lease_seconds ({lease:g})")
        return value

    @field_validator("reply_prefixes")
    @classmethod
    def _protect_own_keys(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for own in (f"{info.data.get('prefix', '')}{key}" for key in OWN_KEYS):
            for prefix in value:
                if prefix.startswith(own) or own.startswith(prefix):
                    raise ValueError(f"{prefix!r} would let replies overwrite {own!r}")
        return value


class WorkerSettings(Section):
    """The process that builds contexts."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    max_inflight_bytes: Count = 4_194_304
    shutdown_timeout_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 25.0
    heartbeat_file: Path | None = None
    consumer: Text | None = None

    @field_validator("consumer")
    @classmethod
    def _check_consumer(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise ValueError("must have no blanks, and only printable ASCII characters")
        if value.startswith(LANE_PREFIX):
            raise ValueError(f"must not begin with {LANE_PREFIX!r}, as lanes of requests do")
        return value


class ModelLimit(Section):
    """Limits and tokenizer of a model."""

    #: Tokens of the context window.
    max_input: Count
    #: The maximum number of tokens of an answer; None is the value in the built-in table.
    max_output: Count | None = None
    #: The tokenizer; None is the tokenizer in the built-in table.
    tokenizer: Text | None = None
    #: A factor for the tokenizer's counts, which are then estimates.
    factor: Factor | None = None


class BudgetSettings(Section):
    """Token budgets of requests without a budget of their own."""

    model: Text | None = None
    max_tokens: Count | None = None
    reserve_tokens: Annotated[int, Field(ge=0)] | None = None
    #: A name, ``{"name": …, parameters}``, or a list of these.
    strategy: StrategySpec = "oldest_first"
    tokenizer: Text = "o200k_base"
    #: Share of the available tokens for tools, array and block together; None for all.
    tools_share: Annotated[Ratio, Field(gt=0)] | None = None
    #: By model; they take precedence over the built-in table.
    model_limits: Mapping[str, ModelLimit] = {}
    #: By the start of a model's name: the factor of counts that are estimates.
    estimate_factors: Mapping[str, Factor] = {}

    @field_validator("reserve_tokens")
    @classmethod
    def _check_reserve(cls, value: int | None, info: ValidationInfo) -> int | None:
        limit = info.data.get("max_tokens")
        if value is not None and limit is not None and value >= limit:
            raise ValueError(f"must be less than budget.max_tokens ({limit})")
        return value


class MemorySettings(Section):
    """How history is shown."""

    limit: Annotated[int, Field(ge=0)] | None = 20
    message_chars: Annotated[int, Field(ge=20)] | None = 500
    tool_results: Literal["recalled", "annotated", "printed"] = "recalled"
    tool_result_chars: Annotated[int, Field(ge=20)] | None = 500
    offload_tokens: Annotated[int, Field(ge=100)] | None = None
    timezone: Literal["utc", "client"] = "utc"
    header: Literal["counted", "still"] = "counted"
    assistant_name: Annotated[str, Field(pattern=r"^\w[\w .-]{0,39}$")] = "Nexus"
    max_rows: Count = 5000
    whole_rows: Count = 1000


class GatherSettings(Section):
    """Time limits for reading history, tools and profile."""

    history_timeout_seconds: Seconds = 2.0
    tools_timeout_seconds: Seconds = 1.0
    profile_timeout_seconds: Seconds = 1.0
    degrade_history: bool = False


class RecorderSettings(Section):
    """Storing of history."""

    enabled: bool = True


class ReportSettings(Section):
    """Reports of builds, which are kept on the bus."""

    ttl_seconds: SecondsOrZero = 900.0
    max_bytes: Count = 262_144


class EventSettings(Section):
    """Events about contexts, and the archive of rows that fell out of contexts."""

    pruned: bool = True
    content: bool = False
    archive: bool = False
    retention_days: Days = 90.0


class ProfilePrompt(Section):
    """The profile of owners who have none."""

    content: str = ""
    editable: bool = True
    description: str = "About this friend: preferences, patterns and context"


class PromptDefaults(Section):
    """Texts of owners who have none of their own."""

    friends_profile: ProfilePrompt = ProfilePrompt()


class UserDefaults(Section):
    """Defaults of new owners."""

    prompts: PromptDefaults = PromptDefaults()


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class LogSettings(Section):
    """Level and form of the log, which goes to stderr."""

    level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_lower)
    ] = "info"
    format: Annotated[Literal["auto", "json", "console"], BeforeValidator(_lower)] = "auto"
    content: bool = False


def _read_switch(value: object) -> object:
    """Read a switch that YAML may have read as a boolean."""
    if isinstance(value, bool):
        return "gutter" if value else "off"
    return "gutter" if (word := _lower(value)) == "on" else word


class Settings(Section):
    """A configuration; ``Settings()`` reads nothing but the variable ``CTXB_RECALL__SEMANTIC``."""

    preset: Preset = "classic"
    guard: Annotated[Literal["gutter", "off"], BeforeValidator(_read_switch)] = "gutter"
    role_marks: bool = True
    bus: BusSettings = BusSettings()
    worker: WorkerSettings = WorkerSettings()
    health: HealthSettings = HealthSettings()
    http: HttpSettings = HttpSettings()
    store: StoreSettings = StoreSettings()
    budget: BudgetSettings = BudgetSettings()
    memory: MemorySettings = MemorySettings()
    recall: RecallSettings = RecallSettings()
    gather: GatherSettings = GatherSettings()
    recorder: RecorderSettings = RecorderSettings()
    summaries: SummariesSettings = SummariesSettings()
    reports: ReportSettings = ReportSettings()
    events: EventSettings = EventSettings()
    tools: ToolsSettings = ToolsSettings()
    prompts: PromptsSettings = PromptsSettings()
    user_defaults: UserDefaults = UserDefaults()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _logged: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: dict[str, Any]) -> dict[str, Any]:
        return with_environment(with_preset(values))

    @property
    def origins(self) -> Mapping[str, str]:
        """Return where values came from, by dotted path; a path that isn't in it is a default."""
        return self._origins

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a line for each outdated setting that a source has, with its location."""
        return self._warnings

    def log_warnings(self) -> None:
        """Log the warnings, unless that was done before."""
        for warning in () if self._logged else self._warnings:
            log.warning("settings.outdated", warning=warning)
        self._logged = True

    def loaded(self, origins: Mapping[str, str], warnings: Sequence[str]) -> "Settings":
        """Return the same settings with the origins of their values and the warnings."""
        loaded = self.model_copy()
        loaded._origins = dict(origins)  # noqa: SLF001 - of its own class
        loaded._warnings = tuple(warnings)  # noqa: SLF001 - likewise
        return loaded


def place_of(settings: Settings, key: str) -> str:
    """Return a setting's path for an error, after where its value is set, if it is.

    The place of a mapping is that of its first key.
    """
    places = (
        where
        for path, where in settings.origins.items()
        if path == key or path.startswith(f"{key}.")
    )
    return at(next(places, None), key)


def at(place: str | None, key: str) -> str:
    """Return a setting's path after the place where its value is set, if it is."""
    blanks = " " if place == ARGUMENT else "  "
    return f"{place}{blanks}{key}" if place else key
