"""Messages as rows of a store, and what is stored put together with what is in memory."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from formatters.model import Row
from service.conversation.reading import mapping
from service.conversation.sending import OWN, disowned, is_summary

#: Fields of a row; all else that a message has goes into its metadata.
_FIELDS: Final = ("id", "run_id", "role", "content", "timestamp", "metadata")

#: What doesn't go there: beside the content a mark says nothing, in the metadata it would.
_BESIDE: Final = (*_FIELDS, OWN)

_ROLES: Final[Mapping[object, str]] = {"user": "HUMAN", "assistant": "AI", "model": "AI"}


def stamped(row: Row, id_: str, now: datetime) -> Row:
    """Return a message as a row of history, under an id and at a time of its own."""
    more = {key: value for key, value in row.items() if key not in _BESIDE and value is not None}
    role = str(row.get("role"))
    fields = {
        "id": id_,
        "run_id": row.get("run_id"),
        "role": _ROLES.get(role, role.upper()),
        "content": row.get("content"),
        "timestamp": row.get("timestamp") or now.isoformat(),
        "metadata": {**more, **mapping(row.get("metadata"))},
    }
    return _with_parts(fields)


def loaded(row: Row) -> Row:
    """Return a row of a store; nothing in it says that the system wrote it."""
    return _with_parts(disowned(row))


def merged(here: Sequence[Row], stored: Sequence[Row], known: Collection[object]) -> list[Row]:
    """Return what is in memory with what others stored, in the order of the store.

    ``known`` are ids that were in memory before: what of these is there no more was summarised or
    taken out, and does not come back. Of what the store's page has not, summaries and older
    messages stand before it, and those that are not stored yet behind it.
    """
    own = {row["id"]: row for row in here if row.get("id")}
    paged = {row["id"] for row in stored}
    others = [row for row in here if row.get("id") not in paged]
    before = [row for row in others if is_summary(row) or row.get("id") in known]
    behind = [row for row in others if not (is_summary(row) or row.get("id") in known)]
    page = [own.get(row["id"], row) for row in stored if row["id"] in own or row["id"] not in known]
    return [*before, *page, *behind]


def _with_parts(row: Row) -> Row:
    """Return a row with its parts where messages of that shape have them; stores have no field."""
    metadata = mapping(row.get("metadata"))
    return {**row, "parts": metadata["parts"]} if "parts" in metadata else row
