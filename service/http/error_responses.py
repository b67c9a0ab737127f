"""Errors over HTTP: their codes, statuses and responses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import Response

from service.errors import ContextBuilderError
from service.wire.response import ErrorBody


class NotFoundError(ContextBuilderError, code="not_found"):
    """There is nothing of that name for this owner."""


class MethodNotAllowedError(ContextBuilderError, code="method_not_allowed"):
    """The path doesn't take this method."""


class UnauthorizedError(ContextBuilderError, code="unauthorized"):
    """The token is missing, or another one."""


class RefusedError(ContextBuilderError, code="forbidden"):
    """The request may not be made."""


class MisdirectedError(ContextBuilderError, code="misdirected"):
    """The request names a host that isn't served here."""


class TooLargeError(ContextBuilderError, code="too_large"):
    """The body has too many bytes."""


class MediaTypeError(ContextBuilderError, code="unsupported_media_type"):
    """The body isn't declared as JSON."""


class TooSlowError(ContextBuilderError, code="request_timeout"):
    """The body didn't come in time."""


class LateError(ContextBuilderError, code="no_answer"):
    """No response came in time; the request may still be built."""


#: By code. Errors with other codes are 503 if they are retryable, else 500.
STATUSES: Final[Mapping[str, int]] = {
    "invalid_request": 400,
    "unsupported_version": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "deadline_exceeded": 408,
    "id_conflict": 409,
    "not_replayable": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "misdirected": 421,
    "unsupported_content": 422,
    "budget_exceeded": 422,
    "overloaded": 429,
    "history_unavailable": 503,
    "no_answer": 504,
}
_RETRY_SECONDS: Final = 1
_RETRY_STATUSES: Final = frozenset({429, 503})
_CHALLENGE: Final = {401: {"WWW-Authenticate": "Bearer"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """The body of an error; the error itself has the form of the wire."""

    error: ErrorBody


_ANSWER: Final = TypeAdapter(ErrorAnswer)


def status_of(code: str, *, retryable: bool) -> int:
    """Return the status of an error code."""
    return STATUSES.get(code, 503 if retryable else 500)


def headers_of(status: int) -> dict[str, str]:
    """Return the headers of a status."""
    retry = {"Retry-After": str(_RETRY_SECONDS)} if status in _RETRY_STATUSES else {}
    return _CHALLENGE.get(status, retry)


def http_error_response(error: ContextBuilderError) -> Response:
    """Return an error as a response."""
    status = status_of(error.code, retryable=error.retryable)
    body = _ANSWER.dump_json(ErrorAnswer(error=ErrorBody.of(error)))
    return Response(
        body, status_code=status, headers=headers_of(status), media_type="application/json"
    )
