"""The errors of the service, and what each of their codes means on the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCode:
    """A code, as those who meet it have to know it."""

    code: str
    #: What it means in general; the first line of the docstring of its error.
    title: str
    #: True where the same request may succeed later.
    retryable: bool = False
    #: True where the error itself says whether it is retryable, and ``retryable`` is the rule.
    varies: bool = False
    #: False where it is raised in process and in commands only.
    on_the_wire: bool = True
    when: str
    remedy: str


_LISTED: Final = (
    ErrorCode(
        code="invalid_request",
        title="The request does not have the form that the wire contract asks for",
        when="A key is missing or has a bad value, parts contradict each other, a tool or a "
        "strategy isn't known, or `reply_to` isn't allowed.",
        remedy="Correct the places that `errors` names; the same request fails again.",
    ),
    ErrorCode(
        code="unsupported_content",
        title="The request is well formed, but asks for something this version does not build",
        when="The input is a list of parts, for instance with an image.",
        remedy="Send the input as text.",
    ),
    ErrorCode(
        code="unsupported_version",
        title="The request speaks a version of the wire contract that is not known here",
        when="`schema_version` has another major number than 1.",
        remedy='Send `"1.0"` or leave it out; upgrade the workers before their callers.',
    ),
    ErrorCode(
        code="id_conflict",
        title="The same owner used the same id for another request",
        when="The answer to another request of that `owner_key` and `id` is still stored, which "
        "it is for `bus.result_ttl_seconds`.",
        remedy="Give every request an `id` of its own; repeat a request only as it was.",
    ),
    ErrorCode(
        code="budget_exceeded",
        title="The parts that may not be left out do not fit into the token budget",
        when="System message, input and reserve alone are larger than `max_tokens` or the model's "
        "limit; `detail` says by how much.",
        remedy="Raise `max_tokens`, lower `reserve_tokens`, offer fewer tools, or shorten the "
        "input.",
    ),
    ErrorCode(
        code="deadline_exceeded",
        title="The request's deadline passed before its context was ready",
        retryable=True,
        when="`deadline` or `timeout_ms` passed while the request waited or was built.",
        remedy="Send it again with more time; where it happens often, add workers.",
    ),
    ErrorCode(
        code="history_unavailable",
        title="The history could not be read",
        retryable=True,
        when="The store didn't give the history in time, or didn't take the input.",
        remedy="Send it again after a moment; look at the store, or allow "
        "`gather.degrade_history`.",
    ),
    ErrorCode(
        code="overloaded",
        title="More requests are waiting than the service accepts",
        retryable=True,
        when="A request came over the channel while `bus.max_backlog` requests waited.",
        remedy="Wait, longer each time, and send it again; add workers.",
    ),
    ErrorCode(
        code="internal",
        title="Something went wrong while a context was built",
        varies=True,
        when="Nothing else in this table fits; also a request that was delivered too often "
        "without an answer.",
        remedy="Send it again where `retryable` is true; else look for its `id` in the log and "
        "in the dead letter.",
    ),
    ErrorCode(
        code="no_answer",
        title="No response came in time; the request may still be built",
        retryable=True,
        on_the_wire=False,
        when="The client's own time ran out.",
        remedy="Send it again under the same `id`: it is built once; see that a worker runs.",
    ),
    ErrorCode(
        code="no_worker",
        title="No worker listens on the request channel",
        retryable=True,
        on_the_wire=False,
        when="A request was published on the channel, and nobody heard it.",
        remedy="Start a worker, or send over the stream, where requests wait.",
    ),
    ErrorCode(
        code="not_replayable",
        title="The build cannot be repeated",
        on_the_wire=False,
        when="Its manifest has expired, or its request, rows or tools are no longer there.",
        remedy="Keep manifests longer, with `manifests.ttl_seconds`.",
    ),
    ErrorCode(
        code="unauthorized",
        title="The token is missing, or another one",
        on_the_wire=False,
        when="A request over HTTP has no `Authorization: Bearer`, or not that of `http.token`.",
        remedy="Send the token.",
    ),
    ErrorCode(
        code="forbidden",
        title="The request may not be made",
        on_the_wire=False,
        when="A page of another origin asks over HTTP, or building over HTTP is switched off.",
        remedy="Send it from a program or from the service's own page, or allow the page; see "
        "`http.allowed_origins` and `http.build`.",
    ),
    ErrorCode(
        code="not_found",
        title="There is nothing of that name for this owner",
        on_the_wire=False,
        when="A path, a build or a row isn't there, or isn't this owner's; builds are shown "
        "as long as their manifest is kept.",
        remedy="Look at the path and at `X-Owner-Key`; keep manifests longer, with "
        "`manifests.ttl_seconds`.",
    ),
    ErrorCode(
        code="method_not_allowed",
        title="The path doesn't take this method",
        on_the_wire=False,
        when="A request over HTTP has a method that its path doesn't know.",
        remedy="Send it with one that `Allow` names.",
    ),
    ErrorCode(
        code="request_timeout",
        title="The body didn't come in time",
        retryable=True,
        on_the_wire=False,
        when="A caller over HTTP was slow.",
        remedy="Send it again, in one go.",
    ),
    ErrorCode(
        code="too_large",
        title="The body has too many bytes",
        on_the_wire=False,
        when="A request over HTTP is longer than `bus.max_payload_bytes`.",
        remedy="Send less.",
    ),
    ErrorCode(
        code="unsupported_media_type",
        title="The body isn't declared as JSON",
        on_the_wire=False,
        when="A request over HTTP has a body and no `Content-Type: application/json`.",
        remedy="Declare it.",
    ),
    ErrorCode(
        code="misdirected",
        title="The request names a host that isn't served here",
        on_the_wire=False,
        when="`Host` of a request over HTTP is none of `http.allowed_hosts` and not the "
        "address itself.",
        remedy="Ask by the address, or allow the name.",
    ),
)

#: What is known of each code. The errors themselves take theirs from here.
CODES: Final[Mapping[str, ErrorCode]] = {each.code: each for each in _LISTED}

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

    A class with a ``code`` has one of `service.errors`, and is as retryable as that says;
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
