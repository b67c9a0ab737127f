"""The errors of the service, and what each of their codes means on the wire."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from reprlib import Repr
from typing import Final, ParamSpec, TypeVar

from formatters.rows import truncate

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCode:
    """The meaning of a code, its cause and its remedy."""

    #: The general meaning of the code; `title` on the wire.
    title: str
    #: Whether the same request may succeed later.
    retryable: bool = False
    #: Whether ``retryable`` is only the default, and each error decides for itself.
    varies: bool = False
    #: False for codes of clients, commands and HTTP only.
    on_the_wire: bool = True
    when: str
    remedy: str


#: Every code; the error classes take their titles from here.
CODES: Final[Mapping[str, ErrorCode]] = {
    "invalid_request": ErrorCode(
        title="The request does not follow the wire contract",
        when="A key is missing or has an invalid value, two parts contradict each other, a tool or "
        "a strategy is unknown, or `reply_to` isn't allowed.",
        remedy="Correct the places that `errors` lists. The same request would fail again.",
    ),
    "unsupported_content": ErrorCode(
        title="The request is valid, but this version does not support its content",
        when="The input is a list of parts, for instance with an image.",
        remedy="Send the input as text.",
    ),
    "unsupported_version": ErrorCode(
        title="The version of the wire contract is not supported",
        when="The major version of `schema_version` isn't 1.",
        remedy='Send `"1.0"`, or no version. Upgrade the workers before their clients.',
    ),
    "id_conflict": ErrorCode(
        title="The same owner used the same id for another request",
        when="The answer to another request with this `owner_key` and `id` is still stored. "
        "Answers are stored for `bus.result_ttl_seconds`.",
        remedy="Give every request a unique `id`. Send a request again only unchanged.",
    ),
    "budget_exceeded": ErrorCode(
        title="The protected parts do not fit into the token budget",
        when="System message, tools, input and reserve alone exceed `max_tokens` or the model's "
        "limit; `detail` says by how much.",
        remedy="Raise `max_tokens`, lower `reserve_tokens`, offer fewer tools, or shorten the "
        "input. If CORE_IDENTITY is the largest part, shorten the system message with "
        "`prompts.identity: plain` or `prompts.identity_file`.",
    ),
    "deadline_exceeded": ErrorCode(
        title="The request's deadline passed before its context was ready",
        retryable=True,
        when="`deadline` or `timeout_ms` passed while the request waited or was built.",
        remedy="Retry with a later deadline. If this happens often, add workers.",
    ),
    "history_unavailable": ErrorCode(
        title="The history could not be read",
        retryable=True,
        when="The store didn't return the history in time, or didn't store the input.",
        remedy="Retry after a moment. If this happens often, check the store, or enable "
        "`gather.degrade_history`.",
    ),
    "overloaded": ErrorCode(
        title="More requests are waiting than the service accepts",
        retryable=True,
        when="A request arrived on the channel while its stream had `bus.max_backlog` entries, or "
        "its owner has more requests waiting than can be answered before their deadlines.",
        remedy="Retry with increasing delays. If this happens often, add workers.",
    ),
    "internal": ErrorCode(
        title="An unexpected error occurred during the build",
        varies=True,
        when="No other code fits, or the request was delivered too often without an answer.",
        remedy="If `retryable` is true, retry. Otherwise search the log and the dead-letter stream "
        "for the request's `id`.",
    ),
    "no_answer": ErrorCode(
        title="No response arrived in time; the request may still be built",
        retryable=True,
        on_the_wire=False,
        when="The client's timeout expired.",
        remedy="Retry with the same `id`, which returns a stored answer. Check that a worker runs.",
    ),
    "bus_unavailable": ErrorCode(
        title="The bus can't be reached",
        retryable=True,
        on_the_wire=False,
        when="Over HTTP, the worker lost its connection to the bus, or the bus refused a command.",
        remedy="Retry with the same `id` after a moment. If this happens often, check the bus with "
        "`ctxb doctor`.",
    ),
    "no_worker": ErrorCode(
        title="No worker listens on the request channel",
        retryable=True,
        on_the_wire=False,
        when="A request was published on the channel without any subscriber.",
        remedy="Start a worker, or send to the stream, where requests wait.",
    ),
    "not_replayable": ErrorCode(
        title="The build cannot be repeated",
        on_the_wire=False,
        when="A build is to be repeated with other options, but its whole request is no longer "
        "kept.",
        remedy="Set `http.content` to `full`, so that reports keep requests.",
    ),
    "unauthorized": ErrorCode(
        title="The token is missing or wrong",
        on_the_wire=False,
        when="An HTTP request lacks `Authorization: Bearer` with the value of `http.token`.",
        remedy="Send the token.",
    ),
    "forbidden": ErrorCode(
        title="The request is not allowed",
        on_the_wire=False,
        when="A page of another origin sent it, or building or importing over HTTP is disabled.",
        remedy="Send it from a program or from the service's own page, or allow it with "
        "`http.allowed_origins`, `http.build` or `recorder.enabled`.",
    ),
    "not_found": ErrorCode(
        title="Nothing of that name was found",
        on_the_wire=False,
        when="A path, a build or a row doesn't exist, or belongs to another owner. Builds are "
        "shown as long as their report is kept.",
        remedy="Check the path and `X-Owner-Key`. To keep reports longer, raise "
        "`reports.ttl_seconds`.",
    ),
    "method_not_allowed": ErrorCode(
        title="The path does not support this method",
        on_the_wire=False,
        when="An HTTP request uses a method that its path doesn't support.",
        remedy="Use a method of the `Allow` header.",
    ),
    "request_timeout": ErrorCode(
        title="The body did not arrive in time",
        retryable=True,
        on_the_wire=False,
        when="An HTTP client was slow.",
        remedy="Retry, and send the body without pauses.",
    ),
    "too_large": ErrorCode(
        title="The body is too large",
        on_the_wire=False,
        when="The body of an HTTP request exceeds `bus.max_payload_bytes`.",
        remedy="Send a smaller body.",
    ),
    "unsupported_media_type": ErrorCode(
        title="The content type is not JSON",
        on_the_wire=False,
        when="An HTTP request has a body without `Content-Type: application/json`.",
        remedy="Set the header.",
    ),
    "misdirected": ErrorCode(
        title="The host of the request is not served here",
        on_the_wire=False,
        when="The `Host` header of an HTTP request names no allowed host. If `http.host` is a "
        "loopback address, that address, `localhost` and `http.allowed_hosts` are allowed; "
        "otherwise `http.allowed_hosts`, or every host if that list is empty.",
        remedy="Use an allowed host, or add the name to `http.allowed_hosts`.",
    ),
}

#: The error class that was declared first for a code, as a client raises it.
CLASSES: Final[dict[str, type["ContextBuilderError"]]] = {}

#: Characters of a key from a message in the pointer of an error or a warning.
POINTER_CHARS: Final = 128
#: Characters of a name that are compared with the known ones.
MAX_NAME_CHARS: Final = 64


class _Repr(Repr):
    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes no integers of thousands of digits
            return f"<an integer of {x.bit_length()} bits>"


_REPR: Final = _Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel = 2
#: Characters of a value that an error quotes: those of a text, with its quotes.
SHOWN_CHARS: Final = 82


def shown(value: object) -> str:
    """Return an untrusted value as an error quotes it: the first 80 characters of its repr."""
    return truncate(_REPR.repr(value), SHOWN_CHARS)


def did_you_mean(
    name: str, known: Iterable[str], form: Callable[[str], str] = str, cutoff: float = 0.6
) -> str:
    """Return ``; did you mean …?`` with the known name most like a wrong one, or an empty text.

    ``form`` writes the known name; ``cutoff`` is the similarity it needs, from 0 to 1.
    """
    # a text of megabytes would take minutes
    close = get_close_matches(name[:MAX_NAME_CHARS].lower(), known, n=1, cutoff=cutoff)
    return "".join(f"; did you mean {form(match)}?" for match in close)


def not_among(value: object, expected: str) -> str:
    """Return the end of an error: a value that isn't one of the quoted names, and a suggestion."""
    names = re.findall("'(.+?)'", expected)
    return f", not {shown(value)}{did_you_mean(str(value), names)}"


def explain_call(usage: str, *, positional: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator whose `TypeError` for other arguments has the usage.

    For methods whose parameters differ between the source systems: an argument must not be taken
    for another one. ``positional`` is the most positional arguments, ``self`` among them.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = signature(function).parameters.keys()

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            unknown = next(iter(kwargs.keys() - known), None)
            if unknown is not None or len(args) > positional:
                problem = "positional arguments" if unknown is None else f"argument {unknown!r}"
                meant = did_you_mean(unknown or "", known)
                raise TypeError(f"{function.__name__}() has no such {problem}; use {usage}{meant}")
            return function(*args, **kwargs)

        return call

    return decorate


@dataclass(frozen=True, slots=True)
class Problem:
    """A place in a request, and what is wrong there."""

    #: A JSON pointer into the request (RFC 6901).
    pointer: str
    detail: str


def escape_key(key: str) -> str:
    """Escape a key for a JSON pointer (RFC 6901, section 3); a long one is cut, with "..."."""
    return truncate(key, POINTER_CHARS).replace("~", "~0").replace("/", "~1")


class ContextBuilderError(Exception):
    """The root of all errors of the service; its own code is ``internal``.

    A subclass declares its code as ``class SomeError(ContextBuilderError, code="some_code")``;
    title and ``retryable`` come from `CODES`. A subclass without a code inherits them, unless it
    declares ``retryable``.
    """

    code = "internal"
    #: The general meaning of the code.
    title = CODES["internal"].title
    #: Whether the same request may succeed later.
    retryable = False

    def __init_subclass__(
        cls, *, code: str | None = None, retryable: bool | None = None, **options: object
    ) -> None:
        super().__init_subclass__(**options)
        if code:
            entry = CODES[code]
            cls.code, cls.title, cls.retryable = code, entry.title, entry.retryable
            CLASSES.setdefault(code, cls)
        if retryable is not None:
            cls.retryable = retryable

    def __init__(self, detail: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail or self.title)
        self.problems = tuple(problems)

    @property
    def detail(self) -> str:
        """Return what happened in this case."""
        return str(self)


#: The root's name in the source documents.
ContextError = ContextBuilderError


class InvalidRequestError(ContextBuilderError, code="invalid_request"):
    """The request doesn't follow the wire contract."""


class UnsupportedContentError(ContextBuilderError, code="unsupported_content"):
    """The request is valid, but this version can't build it."""


class UnsupportedVersionError(ContextBuilderError, code="unsupported_version"):
    """The major version of the request isn't supported."""


class IdConflictError(ContextBuilderError, code="id_conflict"):
    """The owner used the same id for another request."""


class BudgetExceededError(ContextBuilderError, code="budget_exceeded"):
    """The protected parts don't fit into the token budget."""

    def __init__(
        self,
        detail: str = "",
        problems: Sequence[Problem] = (),
        *,
        needed: int | None = None,
        available: int | None = None,
    ) -> None:
        super().__init__(detail, problems)
        #: Tokens of the protected parts, and those available to them; None if not counted.
        self.needed = needed
        self.available = available


class DeadlineExceededError(ContextBuilderError, code="deadline_exceeded"):
    """The deadline passed before the context was ready."""


class HistoryUnavailableError(ContextBuilderError, code="history_unavailable"):
    """The history could not be read."""


class NotFoundError(ContextBuilderError, code="not_found"):
    """Nothing of that name was found."""


class OverloadedError(ContextBuilderError, code="overloaded"):
    """More requests are waiting than the service accepts."""


class StoreError(ContextBuilderError, retryable=True):
    """A store could not be read or written."""


class RowRefusedError(StoreError, retryable=False):
    """A store refuses the content of a row, and will on every attempt."""


class SchemaError(StoreError, retryable=False):
    """The tables of a store don't match this version of the service."""


class OutdatedTermsError(SchemaError):
    """The tables match, but the search index was made by the rules of another version."""


class BusError(ContextBuilderError, retryable=True):
    """The bus could not be reached, or refused a command."""


class ForbiddenError(BusError, retryable=False):
    """The user of this process has no permission for a command of the bus."""


class SummarizerError(ContextBuilderError, retryable=True):
    """A summary could not be made."""


class NoSummaryError(SummarizerError):
    """The summarizer's answer is not a summary of the messages."""


class EmbedderError(ContextBuilderError, retryable=True):
    """Vectors of texts could not be computed."""


class NoVectorError(EmbedderError):
    """One of the texts has no vector, and never will: the embedder refuses it."""


class ToolError(ContextBuilderError):
    """A tool definition is invalid."""


class PromptError(ContextBuilderError, ValueError):
    """A prompt file can't be used."""


class MessageError(ContextBuilderError, ValueError):
    """A message of a caller's own list can't be read."""


class ConfigError(ContextBuilderError):
    """The configuration can't be used."""


class MissingExtraError(ConfigError):
    """The settings need an extra that isn't installed."""

    def __init__(self, subject: str, extra: str) -> None:
        # ctxb is on no package index
        super().__init__(
            f"{subject} needs the extra {extra}: pip install 'PATH[{extra}]', where PATH is the "
            "wheel or the folder that ctxb was installed from"
        )
        self.extra = extra
