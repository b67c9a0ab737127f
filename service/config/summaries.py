"""The settings of summaries."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from service.config.section import Count, Ratio, Seconds, Section, Text, WebUrl


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
