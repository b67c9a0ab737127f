"""Build again what was built before, with other options, on the history as it is now."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any

from formatters.rows import read_content
from service.audit.reports import BuildReport
from service.build.account import Built
from service.builder import ContextBuilder
from service.errors import ContextBuilderError, InvalidRequestError, Problem
from service.ports.stores import HistoryReader
from service.wire.protocol import SCHEMA_VERSION
from service.wire.request import RejectedError, decode_again, set_options


class NotReplayableError(ContextBuilderError, code="not_replayable"):
    """The build cannot be repeated."""


async def build_with_options(
    report: BuildReport, options: Mapping[str, Any], builder: ContextBuilder
) -> Built:
    """Build the request of a report at its moment, with some options replaced; writes nothing.

    The pointers of an error begin at the options.

    Raises:
        NotReplayableError: Neither report nor history has the whole request.
        ContextBuilderError: It can't be built with these options, or the history can't be read.
    """
    known = report.request.body
    body = deepcopy(known) if known else await _request_from_history(report, builder.history)
    set_options(body, {**options, "explain": True})
    try:
        request = decode_again(body, received_at=report.request.now)
    except RejectedError as rejected:
        raise rejected.error from rejected
    try:
        return await builder.build_or_raise(request)
    except InvalidRequestError as error:
        before = request.options_pointer
        problems = [Problem(p.pointer.removeprefix(before), p.detail) for p in error.problems]
        raise InvalidRequestError(error.detail, problems) from error


async def _request_from_history(report: BuildReport, history: HistoryReader) -> dict[str, Any]:
    """Make the request of a redacted report again, with the input's text from the history."""
    request = report.request
    if request.brought:
        parts = ", ".join(request.brought)
        raise NotReplayableError(
            f"its request brought texts that redacted reports don't have ({parts});"
            " http.content=full keeps them"
        )
    rows = await history.rows(request.owner_key, [request.input_id])
    if not rows:
        raise NotReplayableError(
            f"its input, the row {request.input_id!r}, is not in the history: it was erased or"
            " never recorded"
        )
    minutes_west = -(request.now.utcoffset() or timedelta()) // timedelta(minutes=1)
    return {
        "schema_version": SCHEMA_VERSION,
        "id": request.id,
        "run_id": request.run_id,
        "owner_key": request.owner_key,
        "conversation_id": request.conversation_id,
        "content": {
            "id": request.run_id,
            "tools": request.tools,
            "history": [{"id": request.input_id, "content": read_content(rows[0]["content"])}],
            "metadata": {
                "client_timestamp_utc": request.now.isoformat(),
                "client_timezone_offset": minutes_west,
                "context": dict(request.options),
            },
        },
    }
