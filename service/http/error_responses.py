"""Errors over HTTP: their codes, statuses and responses."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import Response

from service.errors import CODES, ContextBuilderError
from service.wire.response import ErrorBody


class HttpError(ContextBuilderError):
    """An error that only HTTP has; its code is one of `STATUSES`."""

    def __init__(self, code: str, detail: str = "") -> None:
        entry = CODES[code]
        self.code, self.title, self.retryable = code, entry.title, entry.retryable
        super().__init__(detail)


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
    "bus_unavailable": 503,
    "no_answer": 504,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """The body of an error; the error itself has the form of the wire."""

    error: ErrorBody


_ANSWER: Final = TypeAdapter(ErrorAnswer)


def status_of(code: str, *, retryable: bool) -> int:
    """Return the status of an error code."""
    return STATUSES.get(code, 503 if retryable else 500)


def json_response(body: str | bytes, status: int = 200) -> Response:
    """Return JSON as a response, with the headers of its status."""
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": "Bearer"}
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def http_error_response(error: ContextBuilderError) -> Response:
    """Return an error as a response, with the status of its code."""
    status = status_of(error.code, retryable=error.retryable)
    return json_response(_ANSWER.dump_json(ErrorAnswer(error=ErrorBody.of(error))), status)
