"""The errors that the service raises, each with the code that stands on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Final

from service.error_codes import CODES

_REPR: Final = Repr()
_REPR.maxstring = _REPR.maxother = 80


def shown(value: object) -> str:
    """Return a stranger's value as a detail names it: at most some 80 characters of it."""
    return _REPR.repr(value)


@dataclass(frozen=True, slots=True)
class Problem:
    """One place in a request, and what is wrong there."""

    #: A JSON pointer into the request (RFC 6901).
    pointer: str
    detail: str


class ContextBuilderError(Exception):
    """Something went wrong while a context was built.

    A class with a ``code`` has one of `service.error_codes`, and is as retryable as that says;
    others are ``internal``.
    """

    code = "internal"
    #: True where the same request may succeed later.
    retryable = False

    def __init_subclass__(cls, *, code: str | None = None, **more: object) -> None:
        super().__init_subclass__(**more)
        if code:
            cls.code, cls.retryable = code, CODES[code].retryable

    def __init__(self, detail: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail or self.title)
        self.problems = tuple(problems)

    @property
    def title(self) -> str:
        """Return what the error means in general: the first line of its docstring."""
        return (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")

    @property
    def detail(self) -> str:
        """Return what happened in this case."""
        return str(self)


#: The name that the source documents use for the root.
ContextError = ContextBuilderError


class InvalidRequestError(ContextBuilderError, code="invalid_request"):
    """The request does not have the form that the wire contract asks for."""


class UnsupportedContentError(ContextBuilderError, code="unsupported_content"):
    """The request is well formed, but asks for something this version does not build."""


class UnsupportedVersionError(ContextBuilderError, code="unsupported_version"):
    """The request speaks a version of the wire contract that is not known here."""


class IdConflictError(ContextBuilderError, code="id_conflict"):
    """The same owner used the same id for another request."""


class BudgetExceededError(ContextBuilderError, code="budget_exceeded"):
    """The parts that may not be left out do not fit into the token budget."""


class DeadlineExceededError(ContextBuilderError, code="deadline_exceeded"):
    """The request's deadline passed before its context was ready."""


class HistoryUnavailableError(ContextBuilderError, code="history_unavailable"):
    """The history could not be read."""


class OverloadedError(ContextBuilderError, code="overloaded"):
    """More requests are waiting than the service accepts."""


class StoreError(ContextBuilderError):
    """A store could not be read or written."""

    retryable = True


class RowRefusedError(StoreError):
    """A store refuses a row for what is in it, however often it comes."""

    retryable = False


class SchemaError(StoreError):
    """A store has not the tables that this version of the service works with."""

    retryable = False


class BusError(ContextBuilderError):
    """The bus could not be reached, or refused a command."""

    retryable = True


class ForbiddenError(BusError):
    """The bus forbids this process what it tried."""

    retryable = False


class SummarizerError(ContextBuilderError):
    """A summary could not be made."""

    retryable = True


class NoSummaryError(SummarizerError):
    """The summarizer answered, but not with a summary of these messages."""


class ToolError(ContextBuilderError):
    """A tool definition is not one."""


class PromptError(ContextBuilderError, ValueError):
    """A prompt file cannot be used."""


class ConfigError(ContextBuilderError):
    """The configuration cannot be used."""
