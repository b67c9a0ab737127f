"""Sections of the settings that have rules of their own."""

import json
import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
#: A share of something, from nothing to all of it.
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _web_url(value: SecretStr) -> SecretStr:
    url = urlsplit(value.get_secret_value())
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("must begin with http:// or https:// and name a host")
    return value


#: Of a server that is asked over HTTP; secret, since it may hold a password.
WebUrl = Annotated[SecretStr, AfterValidator(_web_url)]


def _strategy(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("{", "["):  # a variable's, which is JSON
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"must be a name, or JSON: {error}") from error
    if isinstance(value, str | Mapping | list) and value:
        return value
    raise ValueError("must be a name, a name with parameters, or a list of these")


#: A strategy as requests name it; whether there is such a one is seen where strategies are known.
StrategySpec = Annotated[Any, BeforeValidator(_strategy)]


class Section(BaseModel):
    """A group of settings; an empty one holds its defaults."""

    # defaults are validated too: a bound may depend on a value that was set
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _read_null_as_empty(cls, value: object) -> object:
        # `bus:` with nothing below it is null in YAML
        return {} if value is None else value


#: Characters of a token: fewer can be tried out.
SHORTEST_TOKEN: Final = 16

#: What browsers leave out of an origin.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


def _origin(value: str) -> str:
    """Return an origin that can match: it is compared letter by letter with what browsers send."""
    url = urlsplit(value)
    host = url.hostname or ""
    if url.scheme not in _DEFAULT_PORTS or not _HOST.fullmatch(host):
        raise ValueError(
            "must be an origin, such as https://app.example.com: any page, *, can't be allowed"
        )
    port = "" if url.port in (None, _DEFAULT_PORTS[url.scheme]) else f":{url.port}"
    sent = f"{url.scheme}://{bracketed(host)}{port}"
    if value != sent:
        raise ValueError(f"must be written as browsers send it: {sent}")
    return value


Origin = Annotated[str, AfterValidator(_origin)]


class HttpSettings(Section):
    """Where a worker takes requests over HTTP, and shows its builds."""

    host: Text = "127.0.0.1"
    #: 0 takes a free one, which is logged; None serves nobody.
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    #: What callers have to send; may be None only where no other machine reaches ``host``.
    token: SecretStr | None = None
    #: Names under which callers reach it, besides its address.
    allowed_hosts: tuple[Text, ...] = ()
    #: Pages of other origins that may ask, and read what is answered.
    allowed_origins: tuple[Origin, ...] = ()
    #: Whether messages and rows are shown with what was said in them.
    content: Literal["redacted", "full"] = "redacted"
    #: Whether contexts can be asked for.
    build: bool = True
    #: Requests that cost work, at the same time.
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 8
    #: The newest builds of the worker, which are kept to be shown.
    builds: Annotated[int, Field(ge=1, le=10_000)] = 200

    @field_validator("token")
    @classmethod
    def _ask_strangers_for_a_token(
        cls, value: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        if value is not None:
            secret = value.get_secret_value()
            if len(secret) < SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable():
                raise ValueError(f"{SHORTEST_TOKEN} printable ASCII characters or more are needed")
            return value
        host = info.data.get("host", "")
        if info.data.get("port") is not None and not is_loopback(host):
            raise ValueError(f"is needed where others than this machine reach http.host ({host})")
        return value


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached by its own machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bracketed(host: str) -> str:
    """Return a host as it stands in an address."""
    return f"[{host}]" if ":" in host else host


class HealthSettings(Section):
    """Where a worker answers probes, and whoever collects its metrics."""

    #: An address of this machine; anybody who reaches it can read what is told.
    host: Text = "127.0.0.1"
    #: 0 takes a free one, which is logged, and so does the default where it is taken; None answers
    #: nobody.
    port: Annotated[int, Field(ge=0, le=65_535)] | None = 8765


ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
DISABLED: Final = "OTEL_SDK_DISABLED"

#: What the exporter speaks, and to whom where no variable says so.
PROTOCOL: Final = "http/protobuf"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"


class TelemetrySettings(Section):
    """Whether spans are sent; where to, and how many, say OpenTelemetry's own variables."""

    #: auto sends where the variables name an endpoint; otlp always, none never.
    traces: Literal["auto", "otlp", "none"] = "auto"

    def wanted(self, variables: Mapping[str, str] = os.environ) -> bool:
        """Tell whether spans are to be sent."""
        if self.traces == "none" or variables.get(DISABLED, "").strip().lower() == "true":
            return False
        if self.traces == "otlp":
            return True
        named = (variables.get(EXPORTERS) or "otlp").split(",")
        return _first(ENDPOINTS, variables) is not None and "otlp" in map(str.strip, named)


def endpoint(variables: Mapping[str, str] = os.environ) -> str:
    """Return where spans are sent."""
    return _first(ENDPOINTS, variables) or DEFAULT_ENDPOINT


def unspoken_protocol(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the protocol that the variables ask for, where it is another than ours."""
    asked = _first(PROTOCOLS, variables)
    return None if asked in (None, PROTOCOL) else asked


def _first(names: tuple[str, ...], variables: Mapping[str, str]) -> str | None:
    """Return the first of these that is set; an empty one is not."""
    return next((variables[name].strip() for name in names if variables.get(name)), None)


class StoreSettings(Section):
    """Where history and profiles are kept, for how long, and how Postgres is asked."""

    url: SecretStr = SecretStr("memory://")
    #: Days after which workers delete rows of history, by the rows' own time; None keeps them.
    retention_days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] | None = None
    #: Connections of a process to Postgres; half of them are for reading, so that no writer keeps
    #: builds up.
    pool_size: Annotated[int, Field(ge=2, le=1_000)] = 10
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] = 5.0
    #: A statement that takes longer is given up, waiting for another worker included.
    statement_timeout_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 30.0


class TlsSettings(Section):
    """Whom connections to the bus trust, and how they show who they are."""

    #: Certificates that the server's has to descend from; None for those of the system.
    ca_file: Path | None = None
    #: The own certificate and its key, in PEM, for servers that ask for one.
    cert_file: Path | None = None
    key_file: Path | None = None
    #: Whether the server's certificate has to name the host of the URL.
    check_hostname: bool = True


class SummarizerSettings(Section):
    """What puts old history in few words."""

    #: ``extractive`` chooses sentences and needs no model; ``openai`` asks one over HTTP.
    kind: Literal["extractive", "openai"] = "extractive"
    model: Text | None = None
    #: Of a server that speaks chat completions; None is OpenAI's own.
    base_url: WebUrl | None = None
    api_key: SecretStr | None = None
    #: For one chunk, its retries included.
    timeout_seconds: Seconds = 60.0
    #: After 429, 5xx and lost connections.
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    #: Chunks that are asked for at the same time.
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    #: Tokens of the conversation in one prompt.
    chunk_tokens: Annotated[int, Field(ge=256)] = 12_000
    #: None sends none, for models that take no other than their own.
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = 0.0
    #: The field that the answer's most tokens are sent in.
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    #: Take secrets out of what is sent.
    redact: bool = True
    #: Failures in a row after which nothing is asked for a while.
    breaker_failures: Count = 3
    breaker_seconds: Seconds = 60.0

    @field_validator("model")
    @classmethod
    def _name_a_model(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("kind") == "openai":
            raise ValueError("must be given where summaries.summarizer.kind is openai")
        return value

    @field_validator("api_key")
    @classmethod
    def _fit_into_a_header(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is None:
            if info.data.get("kind") == "openai" and info.data.get("base_url", "") is None:
                raise ValueError("must be given where summaries.summarizer.base_url is not")
            return None
        key = value.get_secret_value()
        if not key.isascii() or not key.isprintable() or " " in key or not key:
            raise ValueError("must be ASCII characters without blanks")
        return value


class SummariesSettings(Section):
    """Summaries of history that no longer fits, under the strategy `summarization`.

    The ratios are shares of the tokens that history may use.
    """

    #: False makes no more of them; those that are stored go on to be shown.
    enabled: bool = True
    #: From where on what has no summary should get one.
    trigger_ratio: Ratio = 0.9
    #: What is left at most without a summary, the summaries' own share included.
    target_ratio: Ratio = 0.8
    #: The newest turns, which are never summarised.
    recent_preserve_ratio: Ratio = 0.25
    #: What summaries may take.
    summary_budget_ratio: Ratio = 0.25
    #: For one summary, all its chunks included.
    timeout_seconds: Seconds = 300.0
    #: Summaries that are made at the same time.
    concurrency: Annotated[int, Field(ge=1, le=100)] = 1
    #: Histories that wait for one at most.
    max_waiting: Count = 256
    summarizer: SummarizerSettings = SummarizerSettings()


#: Letters and digits, with single ``_`` or ``-`` between them: a name of a tool begins with it, and
#: the two ``_`` behind it have to be told from those in it.
SERVER_NAME = r"^[A-Za-z](?:[_-]?[A-Za-z0-9])*$"


class McpServerSettings(Section):
    """A server whose tools are listed, never called: a command to start, or a URL."""

    #: Stands before the names of its tools.
    name: Annotated[str, Field(pattern=SERVER_NAME, max_length=24)]
    #: Speaks MCP on its standard input and output.
    command: Text | None = None
    #: What the command is started with.
    args: tuple[str, ...] = ()
    #: Variables of the command besides a few of this process, such as PATH and HOME.
    env: Mapping[str, SecretStr] = {}
    #: Of a server that speaks MCP over streamable HTTP.
    url: WebUrl | None = None
    #: Sent with each request to the URL.
    headers: Mapping[str, SecretStr] = {}
    #: Names of tools as the server has them; ``*``, ``?`` and ``[…]`` as in names of files.
    allow: tuple[Text, ...] = ("*",)
    #: Goes before what is allowed.
    deny: tuple[Text, ...] = ()
    #: How often tools are listed anew besides the server's own notices of changes.
    refresh_seconds: Seconds = 300.0
    #: To connect, and for a listing with all its pages.
    timeout_seconds: Seconds = 10.0

    @field_validator("headers")
    @classmethod
    def _fit_into_a_request(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, secret in value.items():
            for text in (name, secret.get_secret_value()):
                if not text or not text.isascii() or not text.isprintable():
                    raise ValueError(f"the header {name!r} must be printable ASCII characters")
        return value

    @model_validator(mode="after")
    def _reach_it_in_one_way(self) -> "McpServerSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("either a command or a url is needed, and not both")
        if self.url is not None and (self.args or self.env):
            raise ValueError("args and env go with a command, not with a url")
        if self.command is not None and self.headers:
            raise ValueError("headers go with a url, not with a command")
        return self


class ToolsSettings(Section):
    """Where tool definitions come from."""

    #: Files and folders, seen from the working directory.
    paths: tuple[Path, ...] = ()
    #: Python modules.
    modules: tuple[Text, ...] = ()
    #: Servers; of tools with one name, the first that is listed here stays.
    mcp: tuple[McpServerSettings, ...] = ()
    #: Where the last listing of each server is kept; None keeps it in memory alone.
    snapshots: Path | None = None

    @field_validator("mcp")
    @classmethod
    def _tell_servers_apart(
        cls, value: tuple[McpServerSettings, ...]
    ) -> tuple[McpServerSettings, ...]:
        names = [server.name for server in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two servers are called {name!r}")
        return value


class PromptSection(Section):
    """A section of the system message, behind the identity."""

    #: Its heading.
    label: Text
    #: What it says; either this or a file.
    text: Text | None = None
    #: The file that says it.
    file: Path | None = None
    #: Lower goes first.
    priority: int = 0

    @model_validator(mode="after")
    def _say_one_thing(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("needs either text or file")
        return self


class Injection(Section):
    """A reminder in [THIS_MOMENT], and when it is due."""

    #: What it says.
    text: Text
    #: In each turn that is a multiple of it.
    every_n_turns: Count | None = None
    #: In every turn from so many tokens of history on.
    on_token_threshold: Count | None = None

    @model_validator(mode="after")
    def _have_one_trigger(self) -> Self:
        if (self.every_n_turns is None) == (self.on_token_threshold is None):
            raise ValueError("needs either every_n_turns or on_token_threshold")
        return self


class PromptsSettings(Section):
    """What models are told by the operator."""

    #: In place of the identity that is shipped.
    identity_file: Path | None = None
    #: Whether a request may bring an identity of its own.
    allow_request_identity: bool = False
    #: Whose instruction files stand behind the identity, with those of the folders above it.
    project_folder: Path | None = None
    #: Of several in one folder, the first counts.
    instruction_files: tuple[Text, ...] = ("NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md")
    sections: tuple[PromptSection, ...] = ()
    injections: tuple[Injection, ...] = ()
    #: Between two looks at the files.
    reload_seconds: Seconds = 5.0
