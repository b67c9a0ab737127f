"""A conversation in process over a store: load, append, flush and compact.

The one module of this package that waits: for the store, and for other tasks that use it.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from formatters.model import Row
from formatters.rows import as_mapping, fix_surrogates
from service.conversation.compaction import CompactionResult
from service.conversation.manager import ContextManager
from service.conversation.messages import (
    WRITTEN_BY,
    AnyCall,
    is_summary,
    with_summaries,
    without_mark,
)
from service.conversation.sending import prepare
from service.errors import InvalidRequestError, MessageError, RowRefusedError, explain_call, shown
from service.ports.services import Summarizer
from service.ports.stores import HistoryStore

#: Most rows of a history that a conversation loads: the newest.
MAX_ROWS: Final = 1_000


class Conversation:
    """One conversation of an owner: a `ContextManager` whose messages are kept in a store.

    Several tasks, and several objects for one conversation, lose nothing: a message gets its id
    when it is added, the store keeps one row per id, and loading adds what others stored. A
    message that could not be stored is stored with the next flush. Of two messages with one id, the
    second gets another, or is left out if it says the same. Messages that were pruned or erased in
    the store go with the next load. Summaries stay in memory: the store keeps the messages
    themselves.

    Raises:
        MessageError: The store refuses a message, such as one with a value that JSON doesn't have.
            The message is left out of the conversation, and all others are stored.
        StoreError: The store can't be read or written; messages and their ids are kept.
        TypeError: ``store`` is no store.
    """

    def __init__(
        self,
        store: HistoryStore,
        owner_key: str,
        conversation_id: str,
        *,
        manager: ContextManager | None = None,
        max_rows: int = MAX_ROWS,
    ) -> None:
        if not hasattr(store, "append"):
            fix = "; pass its history" if hasattr(store, "history") else ""
            raise TypeError(f"store has to be a history store, not {shown(store)}{fix}")
        self.owner_key = owner_key
        self.conversation_id = conversation_id
        #: Prompt, tools, budget and strategy; its other conversations are not used here.
        self.manager = manager or ContextManager()
        self.manager.replace_rows(self.manager.rows(conversation_id), conversation_id)
        self._store = store
        self._max_rows = max_rows
        #: Messages that are not stored yet, even if they are no longer in the conversation.
        self._pending: dict[str, Row] = {}
        #: Ids of messages that were stored or loaded.
        self._known: set[str] = set()
        self._lock = asyncio.Lock()

    def add_user_message(self, content: str, *, name: str | None = None) -> None:
        """Add a message of the user."""
        self.manager.add_user_message(content, conversation_id=self.conversation_id, name=name)
        self._stamp()

    def add_assistant_message(
        self, content: str | None, tool_calls: Iterable[AnyCall] | None = ()
    ) -> None:
        """Add an answer of the model."""
        self.manager.add_assistant_message(
            content, tool_calls, conversation_id=self.conversation_id
        )
        self._stamp()

    @explain_call("add_tool_result(tool_call_id=…, name=…, result=…)", positional=1)
    def add_tool_result(self, *, tool_call_id: str, name: str, result: object) -> None:
        """Add a tool's result."""
        self.manager.add_tool_result(
            tool_call_id=tool_call_id,
            name=name,
            result=result,
            conversation_id=self.conversation_id,
        )
        self._stamp()

    async def load(self) -> None:
        """Store new messages, and load those that others stored."""
        async with self._lock:
            await self._flush()
            page = await self._store.recent(
                self.owner_key, self.conversation_id, max_rows=self._max_rows
            )
            rows = [read_stored(row) for row in reversed(page.rows)]
            loaded = {str(row["id"]) for row in rows}
            gone = await self._find_gone(loaded)
            self._remove(gone)
            merged = merge(self.manager.rows(self.conversation_id), rows, self._known)
            self.manager.replace_rows(merged, self.conversation_id)
            self._known = (self._known - gone) | loaded  # what is gone may be restored

    async def flush(self) -> None:
        """Store the messages that are not stored yet."""
        async with self._lock:
            await self._flush()

    async def _flush(self) -> None:
        self._stamp()
        rows = list(self._pending.values())
        refused = await self._append(rows) if rows else {}
        self._remove(refused)
        for row in rows:  # others may have been added in the meantime
            self._known.add(str(row["id"]))
            del self._pending[str(row["id"])]
        self._known -= refused.keys()
        if refused:
            raise MessageError("; ".join(refused.values()))

    async def _append(self, rows: Sequence[Row]) -> dict[str, str]:
        """Store rows; returns what is wrong with those that the store refuses, by their ids."""
        try:
            await self._store.append(self.owner_key, rows, conversation_id=self.conversation_id)
        except (InvalidRequestError, RowRefusedError) as error:
            if str(error).startswith(("/owner_key", "/conversation_id")):
                raise
            if len(rows) > 1:
                half = len(rows) // 2
                return await self._append(rows[:half]) | await self._append(rows[half:])
            (row,) = rows
            reason = str(error).removeprefix("/0").lstrip("/: ")
            text = f"the store refuses the message {shown(row['content'])}, which is left out"
            return {str(row["id"]): f"{text}: {reason}"}
        return {}

    async def _find_gone(self, loaded: Collection[str]) -> set[str]:
        """Return the ids of stored messages that the store doesn't show any more."""
        rows = self.manager.rows(self.conversation_id)
        older = {str(row.get("id")) for row in rows} & self._known - set(loaded)
        if not older:
            return set()
        shown_rows = await self._store.rows(self.owner_key, [*older], pruned=False)
        return older - {str(row["id"]) for row in shown_rows}

    def _remove(self, ids: Collection[str]) -> None:
        """Stamp new messages, and remove those with these ids from the conversation."""
        self._stamp()
        rows = self.manager.rows(self.conversation_id)
        kept = (row for row in rows if row.get("id") not in ids)
        self.manager.replace_rows(kept, self.conversation_id)

    async def build_messages(self) -> list[dict[str, Any]]:
        """Return the messages for the next call, including those that others stored."""
        await self.load()
        return self.manager.build_messages(conversation_id=self.conversation_id)

    async def compact(
        self, summarizer: Summarizer, *, force: bool = False
    ) -> CompactionResult | None:
        """Replace older messages with a summary; the store keeps them."""
        await self.load()
        return await self.manager.compact(
            summarizer, force=force, conversation_id=self.conversation_id
        )

    def _stamp(self) -> None:
        """Give new messages an id, a time, and the form of stored rows; but not summaries."""
        now = datetime.now(UTC)
        stamped: dict[object, Row] = {}
        for row in self.manager.rows(self.conversation_id):
            given = row.get("id")
            id_ = _new_id() if given in (None, "") else fix_surrogates(str(given))
            same = stamped.get(id_)
            if is_summary(row):
                stamped[id(row)] = row
            elif same is None and (id_ in self._known or id_ in self._pending):
                stamped[id_] = row
            elif same is None or prepare(same) != prepare(row):
                id_ = id_ if same is None else _new_id()
                stamped[id_] = self._pending[id_] = to_stored(row, id_, now)
        self.manager.replace_rows(stamped.values(), self.conversation_id)


def _new_id() -> str:
    return f"msg_{uuid4().hex}"


def merge(current: Sequence[Row], stored: Sequence[Row], known: Collection[object]) -> list[Row]:
    """Return the messages in memory with those that others stored, in the order of the store.

    ``known`` are ids that were in memory before: those no longer in ``current`` were summarised or
    deleted, and are not added again. Of the messages that are not in ``stored``, older ones
    precede the stored rows, those that are not stored yet follow them, and summaries keep their
    places.
    """
    own = {row["id"]: row for row in current if row.get("id")}
    page = [own.get(row["id"], row) for row in stored if row["id"] in own or row["id"] not in known]
    stored_ids = {row["id"] for row in stored}
    others = [row for row in current if row.get("id") not in stored_ids and not is_summary(row)]
    older = [row for row in others if row.get("id") in known]
    newer = [row for row in others if row.get("id") not in known]
    return with_summaries([*older, *page, *newer], current)


#: Fields of a message that don't go into a row's metadata: those of rows, and the mark, which has
#: no effect outside of the metadata, and would have one inside.
_NOT_METADATA: Final = ("id", "run_id", "role", "content", "timestamp", "metadata", WRITTEN_BY)

_ROLES: Final[Mapping[object, str]] = {"user": "HUMAN", "assistant": "AI", "model": "AI"}


def to_stored(row: Row, id_: str, now: datetime) -> Row:
    """Return a message as a row of history, with this id, and this time if it has none."""
    more = {
        key: value for key, value in row.items() if key not in _NOT_METADATA and value is not None
    }
    role = str(row.get("role"))
    fields = {
        "id": id_,
        "run_id": row.get("run_id"),
        "role": _ROLES.get(role, role.upper()),
        "content": row.get("content"),
        "timestamp": row.get("timestamp") or now.isoformat(),
        "metadata": {**more, **as_mapping(row.get("metadata"))},
    }
    return _restore_parts(fields)


def read_stored(row: Row) -> Row:
    """Return a row of a store as a message, without any mark that the system wrote it."""
    return _restore_parts(without_mark(row))


def _restore_parts(row: Row) -> Row:
    """Return a row with its parts where messages have them; stores keep them in the metadata."""
    metadata = as_mapping(row.get("metadata"))
    return {**row, "parts": metadata["parts"]} if "parts" in metadata else row
