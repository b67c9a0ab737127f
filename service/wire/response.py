"""What a build comes to: a context with its account, or an error."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from service.errors import ContextBuilderError


class Usage(BaseModel):
    """Where the tokens went; ``sum(blocks) + tools == total``."""

    model_config = ConfigDict(frozen=True)

    model: str | None
    tokenizer: str
    #: False where the counts are estimates.
    exact: bool
    #: The token limit, what is kept free of it, and what is left.
    budget: int
    reserve: int
    available: int
    total: int
    tools: int
    #: ``total / available``, to three digits.
    utilization: float
    #: Tokens of the messages before the first part that changes from build to build.
    cacheable_prefix: int
    blocks: dict[str, int]


class DecisionRecord(BaseModel):
    """What became of a candidate for the context, and why."""

    model_config = ConfigDict(frozen=True)

    message_ids: list[str] = []
    block: str
    #: A code of `service.budget.decisions.Outcome`; readers must bear new ones.
    decision: str
    reason: str
    detail: str
    tokens: int | None = None
    score: float | None = None
    #: The ``memory_tokens`` at which it would have been kept whole, where that is defined; of a
    #: message of the run, the tokens of `RUN` at which it would have been.
    smallest_budget: int | None = None
    #: How many rows it speaks of, where they were not read.
    count: int | None = None


class WarningRecord(BaseModel):
    """Something the caller should know about a build that succeeded."""

    model_config = ConfigDict(frozen=True)

    code: str
    pointer: str | None = None
    detail: str


class ErrorBody(BaseModel):
    """Why no context was built."""

    model_config = ConfigDict(frozen=True)

    code: str
    title: str
    detail: str
    retryable: bool
    errors: list[dict[str, str]] = []

    @classmethod
    def of(cls, error: ContextBuilderError) -> Self:
        """Return an error as it stands on the wire."""
        return cls(
            code=error.code,
            title=error.title,
            detail=error.detail,
            retryable=error.retryable,
            errors=[{"pointer": each.pointer, "detail": each.detail} for each in error.problems],
        )


class BuildSuccess(BaseModel):
    """A context."""

    model_config = ConfigDict(frozen=True)

    status: Literal["success"] = "success"
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    provider_request: dict[str, Any] | None = None
    usage: Usage
    build_id: str
    #: Candidates of which at least a part is in the messages, and the others.
    kept: int
    dropped: int
    decisions: list[DecisionRecord] = []
    warnings: list[WarningRecord] = []


class BuildFailure(BaseModel):
    """No context, and why."""

    model_config = ConfigDict(frozen=True)

    status: Literal["error"] = "error"
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    error: ErrorBody
