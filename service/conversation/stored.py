"""A conversation in process over a store: it loads, appends, flushes and compacts.

The one module of this package that waits: for the store, and for whoever uses it at the same time.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from formatters.model import Row
from service.conversation.compaction import CompactionResult, Summarizes
from service.conversation.manager import ContextManager
from service.conversation.messages import AnyCall
from service.conversation.sending import OWN, disowned, is_summary
from service.conversation.shapes import mapping
from service.ports.stores import HistoryStore

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


#: Of a history, the newest rows that a conversation takes in at most.
MAX_ROWS: Final = 1_000


def new_id() -> str:
    """Return an id that no other message has."""
    return f"msg_{uuid4().hex}"


class Conversation:
    """One conversation of an owner: a `ContextManager` whose messages are kept in a store.

    Several tasks, and several objects on one conversation, lose nothing: a message gets its id
    when it is added, the store knows each id once, and loading adds what others stored. A message
    that could not be stored is stored with the next flush. Summaries stay in memory: the store
    keeps what was said.

    Raises:
        StoreError: The store can't be read or written; messages stay, and so do their ids.
    """

    def __init__(
        self,
        store: HistoryStore,
        owner_key: str,
        conversation_id: str,
        *,
        manager: ContextManager | None = None,
        max_rows: int = MAX_ROWS,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        self.owner_key = owner_key
        self.conversation_id = conversation_id
        #: Prompt, tools, budget and strategy; other conversations in it are nobody's here.
        self.manager = manager or ContextManager()
        histories = self.manager.histories
        histories.replace(histories.rows(conversation_id), conversation_id)
        self._store = store
        self._max_rows = max_rows
        self._make_id = make_id
        #: Messages that the store hasn't got yet, whatever became of them here.
        self._pending: dict[str, Row] = {}
        self._known: set[str] = set()
        self._lock = asyncio.Lock()

    # --- adding ------------------------------------------------------------------------------

    def add_user_message(self, content: str, *, name: str | None = None) -> None:
        """Add what the user says."""
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

    def add_tool_result(self, *, tool_call_id: str, name: str, result: object) -> None:
        """Add a tool's result."""
        self.manager.add_tool_result(
            tool_call_id=tool_call_id,
            name=name,
            result=result,
            conversation_id=self.conversation_id,
        )
        self._stamp()

    # --- the store ---------------------------------------------------------------------------

    async def load(self) -> None:
        """Store what is new here, and take in what is new there."""
        async with self._lock:
            await self._flush()
            page = await self._store.recent(
                self.owner_key, self.conversation_id, max_rows=self._max_rows
            )
            rows = [loaded(row) for row in reversed(page.rows)]
            self._stamp()
            self._put(merged(self._rows(), rows, self._known))
            self._known |= {str(row["id"]) for row in rows}

    async def flush(self) -> None:
        """Store what was added since the last time."""
        async with self._lock:
            await self._flush()

    # --- building ----------------------------------------------------------------------------

    async def build_messages(self) -> list[dict[str, Any]]:
        """Return the messages for the next call, with all that is stored by now."""
        await self.load()
        return self.manager.build_messages(conversation_id=self.conversation_id)

    async def compact(
        self, summarizer: Summarizes, *, force: bool = False
    ) -> CompactionResult | None:
        """Put a summary in the place of older messages; the store keeps those."""
        await self.load()
        return await self.manager.compact(
            summarizer, force=force, conversation_id=self.conversation_id
        )

    # --- inside ------------------------------------------------------------------------------

    def _stamp(self) -> None:
        """Give messages that are new an id and a time, and the form that stores have."""
        now = datetime.now(UTC)
        rows = list(self._rows())
        for place, row in enumerate(rows):
            if self._is_new(row):
                rows[place] = new = stamped(row, str(row.get("id") or self._make_id()), now)
                self._pending[str(new["id"])] = new
        self._put(rows)

    def _is_new(self, row: Row) -> bool:
        """Tell whether a message has yet to be stored; a summary never is."""
        id_ = str(row.get("id"))
        return not is_summary(row) and id_ not in self._known and id_ not in self._pending

    async def _flush(self) -> None:
        self._stamp()
        rows = dict(self._pending)
        if rows:
            await self._store.append(
                self.owner_key, [*rows.values()], conversation_id=self.conversation_id
            )
        self._known |= rows.keys()
        for id_ in rows:
            del self._pending[id_]

    def _rows(self) -> Sequence[Row]:
        return self.manager.histories.rows(self.conversation_id)

    def _put(self, rows: Sequence[Row]) -> None:
        self.manager.histories.replace(rows, self.conversation_id)
