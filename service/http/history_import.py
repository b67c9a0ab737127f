"""Rows of a conversation that took place elsewhere, stored in an owner's history."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import structlog
from pydantic import Field

from formatters.model import Row
from service.build.brought_rows import explain_foreign, misnamed_keys
from service.errors import InvalidRequestError, Problem, RowRefusedError
from service.http.endpoint import Body, EndpointCall, validated
from service.http.error_responses import HttpError
from service.wire.history_row import HistoryRow, find_conflicts
from service.wire.payload import clean_json, read_json
from service.wire.response import WarningRecord
from service.wire.validation import Id, check_ids

log = structlog.get_logger(__name__)

#: Rows that are imported in one call.
MOST_ROWS: Final = 1_000


class ImportBody(Body):
    """Rows of the owner's history, oldest first."""

    rows: Annotated[list[HistoryRow], Field(min_length=1, max_length=MOST_ROWS)]
    #: The conversation of the rows that name none.
    conversation_id: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome of an import."""

    #: How many rows are new, and how many were there already.
    stored: int
    known: int
    #: Ids that other rows of the history have; these rows stay.
    conflicts: Sequence[str]
    #: What of the rows is not read.
    warnings: Sequence[WarningRecord] = ()


async def import_history(call: EndpointCall) -> Imported:
    """Store rows in the owner's history; those that are there already stay as they are."""
    if not call.builder.settings.recorder.enabled:
        raise HttpError("forbidden", "recorder.enabled is off: no history is written here")
    owner_key, history = call.owner_key, call.builder.history
    async with call.services.admission.admit(len(call.body)):
        body = await asyncio.to_thread(_read_body, call.body, owner_key)
        rows = [row.model_dump(exclude={"owner_key"}) for row in body.rows]
        try:
            stored = await history.append(owner_key, rows, conversation_id=body.conversation_id)
        except RowRefusedError as error:
            raise InvalidRequestError(f"nothing is stored: {error.detail}") from error
        ids = list(dict.fromkeys(row.id for row in body.rows))
        kept = await history.rows(owner_key, ids) if stored < len(rows) else ()
    conflicts = find_conflicts(body.rows, kept, body.conversation_id)
    log.info("history.imported", owner_key=owner_key, rows=stored, conflicts=len(conflicts))
    known = len(rows) - stored
    warnings = (*_warn_of_foreign(rows), *misnamed_keys(rows, "/rows"))
    return Imported(stored=stored, known=known, conflicts=conflicts, warnings=warnings)


def _warn_of_foreign(rows: Sequence[Row]) -> Iterator[WarningRecord]:
    foreign = {index: detail for index, row in enumerate(rows) if (detail := explain_foreign(row))}
    if foreign:
        first, detail = next(iter(foreign.items()))
        detail += f"; such rows: {len(foreign)}"
        yield WarningRecord(code="content_skipped", pointer=f"/rows/{first}/content", detail=detail)


def _read_body(payload: bytes, owner_key: str) -> ImportBody:
    """Read a body; raises `InvalidRequestError`, also for a row that names another owner."""
    raw = read_json(payload, max_bytes=len(payload))
    rows = raw.get("rows")
    problems: list[Problem] = []
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        if not isinstance(row, Mapping):
            continue
        try:
            check_ids(row)
        except InvalidRequestError as error:
            pointer = f"/rows/{index}"
            problems += (Problem(pointer + each.pointer, each.detail) for each in error.problems)
        if row.get("owner_key") not in (None, owner_key):
            problems.append(Problem(f"/rows/{index}/owner_key", "differs from X-Owner-Key"))
    if problems:
        raise InvalidRequestError(f"{problems[0].pointer}: {problems[0].detail}", problems)
    return validated(ImportBody, clean_json(raw))
