"""Settings of what goes into contexts, and of the models that help to choose it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from service.config.section import Count, Ratio, Seconds, Section, Text, WebUrl

#: Letters and digits, with single ``_`` or ``-`` between them. Names of tools begin with it and a
#: double ``_``, which must be distinguishable from those in the name.
SERVER_NAME: Final = r"^[A-Za-z](?:[_-]?[A-Za-z0-9])*$"


class McpServerSettings(Section):
    """An MCP server whose tools are listed, never called: a command to start, or a URL."""

    #: The prefix of the names of the server's tools.
    name: Annotated[str, Field(pattern=SERVER_NAME, max_length=24)]
    #: A program that speaks MCP on its standard input and output.
    command: Text | None = None
    #: Arguments of the command.
    args: tuple[str, ...] = ()
    #: Environment variables of the command, in addition to a few of this process, such as PATH.
    env: Mapping[str, SecretStr] = {}
    #: The URL of a server that speaks MCP over streamable HTTP.
    url: WebUrl | None = None
    #: Headers of each request to the URL.
    headers: Mapping[str, SecretStr] = {}
    #: The server's names of tools that are offered; ``*``, ``?`` and ``[…]`` are wildcards.
    allow: tuple[Text, ...] = ("*",)
    #: The server's names of tools that are left out; takes precedence over ``allow``.
    deny: tuple[Text, ...] = ()
    #: How often tools are listed again. A change that the server reports is read at once.
    refresh_seconds: Seconds = 300.0
    #: Time limit of connecting, and of listing all tools.
    timeout_seconds: Seconds = 10.0

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, secret in value.items():
            for text in (name, secret.get_secret_value()):
                if not text or not text.isascii() or not text.isprintable():
                    raise ValueError(f"the header {name!r} must be printable ASCII characters")
        return value

    @model_validator(mode="after")
    def _require_one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("either a command or a url is needed, and not both")
        if self.url is not None and (self.args or self.env):
            raise ValueError("args and env go with a command, not with a url")
        if self.command is not None and self.headers:
            raise ValueError("headers go with a url, not with a command")
        return self


class ToolsSettings(Section):
    """Where tool definitions come from."""

    paths: tuple[Path, ...] = ()
    modules: tuple[Text, ...] = ()
    mcp: tuple[McpServerSettings, ...] = ()
    snapshots: Path | None = None
    defer: bool = False
    search_tokens: Annotated[int, Field(ge=256)] = 3_000

    @field_validator("mcp")
    @classmethod
    def _require_unique_names(
        cls, value: tuple[McpServerSettings, ...]
    ) -> tuple[McpServerSettings, ...]:
        names = [server.name for server in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two servers are called {name!r}")
        return value


class PromptSection(Section):
    """A section of the system message, after the identity."""

    #: The section's heading.
    label: Text
    #: The section's text, if there is no file.
    text: Text | None = None
    #: A file with the section's text.
    file: Path | None = None
    #: Sections with lower numbers come first.
    priority: int = 0

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("needs either text or file")
        return self


class Injection(Section):
    """A reminder in [THIS_MOMENT], and when it is due."""

    #: The reminder's text.
    text: Text
    #: Printed in each turn whose number is a multiple of this. If a build doesn't read all rows,
    #: the number is estimated.
    every_n_turns: Count | None = None
    #: Printed if the rows that a build reads have at least this many tokens. `memory.limit` and the
    #: budget limit these rows, so a high threshold may never be reached.
    on_token_threshold: Count | None = None

    @model_validator(mode="after")
    def _require_one_trigger(self) -> Self:
        if (self.every_n_turns is None) == (self.on_token_threshold is None):
            raise ValueError("needs either every_n_turns or on_token_threshold")
        return self


class PromptsSettings(Section):
    """The operator's instructions to models."""

    identity: Literal["nexus", "plain", "none"] = "nexus"
    identity_file: Path | None = None
    capabilities: Literal["full", "names", "none"] = "full"
    allow_request_identity: bool = False
    project_folder: Path | None = None
    instruction_files: tuple[Text, ...] = ("NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md")
    sections: tuple[PromptSection, ...] = ()
    injections: tuple[Injection, ...] = ()
    reload_seconds: Seconds = 5.0


class ModelSettings(Section):
    """A model over HTTP, or one within the process, which needs no more than its kind."""

    kind: str
    model: Text | None = None
    base_url: WebUrl | None = None
    api_key: SecretStr | None = None

    @model_validator(mode="after")
    def _require_kind(self) -> Self:
        if self.model is not None and "kind" not in self.model_fields_set:
            raise ValueError(f"kind is missing: openai uses model, {self.kind} doesn't")
        return self

    @field_validator("model")
    @classmethod
    def _require_model(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("kind") == "openai":
            raise ValueError("must be given where kind is openai")
        return value

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is None:
            if info.data.get("kind") == "openai" and info.data.get("base_url", "") is None:
                raise ValueError("must be given where base_url is not")
            return None
        key = value.get_secret_value()
        if not key.isascii() or not key.isprintable() or " " in key or not key:
            raise ValueError("must be ASCII characters without blanks")
        return value


class SummarizerSettings(ModelSettings):
    """The writer of summaries: an extractive summarizer, or a model over HTTP."""

    kind: Literal["extractive", "openai"] = "extractive"
    timeout_seconds: Seconds = 60.0
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    chunk_tokens: Annotated[int, Field(ge=256)] = 12_000
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = 0.0
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    redact: bool = True
    breaker_failures: Count = 3
    breaker_seconds: Seconds = 60.0


class SummariesSettings(Section):
    """Summaries of history that no longer fits, with the strategy `summarization`.

    The ratios are shares of the tokens that history may use.
    """

    enabled: bool = True
    trigger_ratio: Ratio = 0.9
    target_ratio: Ratio = 0.8
    recent_preserve_ratio: Ratio = 0.25
    summary_budget_ratio: Ratio = 0.25
    timeout_seconds: Seconds = 300.0
    concurrency: Annotated[int, Field(ge=1, le=100)] = 1
    max_waiting: Count = 256
    summarizer: SummarizerSettings = SummarizerSettings()


class EmbedderSettings(ModelSettings):
    """The model that computes vectors of rows and questions."""

    kind: Literal["minilm", "openai"] = "minilm"
    #: To compare a question with rows; a build goes on without after it.
    timeout_seconds: Seconds = 2.0


class RecallSettings(Section):
    """Ranking of rows by meaning, and the tool by which models fetch messages."""

    tool: bool = False
    max_tokens: Annotated[int, Field(ge=64, le=100_000)] = 1_000
    semantic: bool = False
    embedder: EmbedderSettings = EmbedderSettings()
