"""Answer recalls: read the messages that are requested; `fetch_selection` selects among them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from formatters.fetched import find_tool_names, full_text
from formatters.guard import Place
from formatters.handles import is_handle, make_handle, make_summary_handle
from formatters.model import Facts, Message, Role, Row, Summary
from formatters.rows import read_content, read_role, read_row, read_rows, sort_messages
from service.build.account import ShownRows
from service.build.fetch_selection import MAX_UNKNOWN, Names, RecallPage, Selector, ToolNames
from service.build.gather import Gathering, Sources
from service.build.plan import Plan
from service.build.text_search import fold_case
from service.config.settings import Settings
from service.errors import (
    ContextBuilderError,
    HistoryUnavailableError,
    InvalidRequestError,
    Problem,
    StoreError,
    shown,
)
from service.observe.metrics import Metrics
from service.ports.services import TokenCounter
from service.ports.stores import STORED_CHARS
from service.wire.recall import RecallContent, RecallRequest, RecallSuccess
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord

log = structlog.get_logger(__name__)

#: Above any context: what limits an answer is its own number of tokens.
AMPLE: Final = 100_000_000
#: Rows that a search for a text reads at a time.
SCAN_ROWS: Final = 500
#: The fewest tokens that a message takes, about; more matches than fit are not looked for.
MESSAGE_TOKENS: Final = 5
#: Rows that may be added between an answer and the recall by a handle in it.
NEW_ROWS: Final = 500
#: Rows before a tool result among which its call is looked for, and the most of such reads. Agents
#: store a call shortly before its result; parallel calls have other results between them.
CALL_ROWS: Final = 50
MAX_CALL_READS: Final = 10

#: Selects among the messages that were read.
Select = Callable[[Selector], RecallPage]


def as_build(request: RecallRequest, max_tokens: int) -> BuildRequest:
    """Return the request for a context whose history is what a recall ranks."""
    content = request.content
    raw = {
        "id": request.id,
        "owner_key": request.owner_key,
        "conversation_id": request.conversation_id,
        "content": {
            "current_input": content.query or "recall",
            "timestamp_utc": content.timestamp_utc,
            "timezone_offset": content.timezone_offset,
            "tools": None,
            "context": {
                "model": content.model,
                "strategy": "relevance",
                "memory_limit": None,
                "memory_tokens": max_tokens,
                "max_tokens": AMPLE,
                "reserve_tokens": 0,
            },
        },
    }
    return BuildRequest.model_validate(raw, context={"received_at": request.received_at})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """A recall: its request, and what it reads from."""

    request: RecallRequest
    #: That of `as_build`, and its plan.
    build: BuildRequest
    plan: Plan
    sources: Sources
    settings: Settings
    counter: TokenCounter
    metrics: Metrics
    #: The messages that aren't repeated.
    excluded: ShownRows
    max_tokens: int

    async def fetch(self) -> RecallSuccess:
        """Return the answer.

        Raises:
            HistoryUnavailableError: The store failed, or didn't answer in time.
            InvalidRequestError: A message that the recall names isn't there.
        """
        seconds = self.settings.gather.history_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                names = await self._read_names()
            # the history that a query ranks has time limits of its own
            async with asyncio.timeout(None if self._content.query else seconds):
                select = await self._read()
        except (StoreError, TimeoutError) as error:
            detail = f"the store failed, or didn't answer within {seconds:g} s"
            raise HistoryUnavailableError(detail) from error
        except ContextBuilderError:
            raise
        except Exception as error:  # a store of others, or spoiled rows, may raise anything
            if self.sources.is_news("history", error):
                log.exception("gather.broken", what="history")
            detail = f"the history could not be read: {type(error).__name__}"
            raise HistoryUnavailableError(detail) from error
        selector = Selector(
            request=self.request,
            plan=self.plan,
            counter=self.counter,
            names=names,
            excluded=self.excluded,
            max_tokens=self.max_tokens,
        )
        # in a thread, so that the event loop stays free
        return await asyncio.to_thread(lambda: selector.answer(select(selector)))

    async def _read(self) -> Select:
        """Read what is requested; return what selects from it."""
        content = self._content
        if content.query is not None:
            return await self._read_ranked()
        if content.ids is not None:
            return await self._read_by_ids(content.ids)
        if content.around is not None:
            return await self._read_around(content.around)
        return await self._read_matches(str(content.grep))

    async def _read_names(self) -> Names:
        """Read which rows have handles; in few histories it isn't all of them."""
        history, most = self.sources.history, self.settings.memory.max_rows
        if (await history.recent(*self._scope, max_rows=1)).total <= most:
            return Names()
        page = await history.recent(*self._scope, max_rows=most)
        return Names(frozenset(str(row["id"]) for row in page.rows))

    @property
    def _content(self) -> RecallContent:
        return self.request.content

    @property
    def _scope(self) -> tuple[str, str | None]:
        return self.request.owner_key, self.plan.conversation_id

    # --- by a query --------------------------------------------------------------------------

    async def _read_ranked(self) -> Select:
        memory = self.plan.memory
        reads = Gathering(self.build, self.plan, self.sources, self.settings, self.metrics)
        history = await reads.read_history()
        if "history" in reads.degraded:
            raise HistoryUnavailableError(reads.degraded["history"].detail)
        facts = Facts(
            current_input=self.build.current_input,
            history=history.messages,
            grouped=history.grouped,
            similarities=history.similarities,
            memory=replace(
                memory,
                message_chars=memory.message_chars or STORED_CHARS,
                tool_results="printed",
                tool_result_chars=memory.tool_result_chars or STORED_CHARS,
            ),
            guard=self.plan.guard,
        )
        warnings = tuple(reads.degraded.values())
        return lambda selector: replace(selector.ranked(facts), warnings=warnings)

    # --- by ids ------------------------------------------------------------------------------

    async def _read_by_ids(self, ids: Sequence[str]) -> Select:
        rows, unknown = await self._find(ids)
        warnings = [
            WarningRecord(
                code="unknown_id",
                pointer=f"/content/ids/{index}",
                detail=f"no message has the id {shown(name)}",
            )
            for index, name in enumerate(ids)
            if name in unknown
        ]
        hidden = [str(row["id"]) for row in rows if read_role(row.get("role")) is Role.OTHER]
        if hidden:
            detail = f"no context shows the roles of {', '.join(map(shown, hidden[:MAX_UNKNOWN]))}"
            warnings.append(WarningRecord(code="role_not_shown", detail=detail))
        messages = sort_messages(_readable(rows))
        tools = await self._read_tool_names(messages)
        named = [name for name in dict.fromkeys(ids) if name in unknown]
        return lambda selector: replace(selector.by_ids(messages, tools, named), warnings=warnings)

    # --- around a message --------------------------------------------------------------------

    async def _read_around(self, name: str) -> Select:
        before, after = self._content.before, self._content.after
        row_id = await self._resolve(name, "/content/around")
        # one more on each side shows whether there are any
        rows = await self.sources.history.around(
            *self._scope, row_id, before=before + 1, after=after + 1
        )
        messages = read_rows(rows)
        tools = await self._read_tool_names(messages, rows)
        return lambda selector: selector.around(messages, tools, row_id)

    # --- by a text ---------------------------------------------------------------------------

    async def _read_matches(self, text: str) -> Select:
        """Read rows from the newest on until enough of them contain the text."""
        # as it was written, and as it was before the guard printed it
        needles = {fold_case(text), fold_case(self.plan.guard.unquote(text, Place.ROW))} - {""}
        enough = self.max_tokens // MESSAGE_TOKENS
        matches: list[Row] = []
        read: list[Row] = []  # what calls and results are among
        scanned, oldest, is_end = 0, self._content.older_than, False
        if oldest is not None:
            oldest = await self._resolve(oldest, "/content/older_than")
        while not is_end and len(matches) < enough and scanned < self.settings.memory.max_rows:
            page = await self._read_older(oldest)
            for row in page:
                oldest = str(row["id"])
                searched = fold_case(_searched_text(row))
                if any(needle in searched for needle in needles):
                    matches.append(row)
                if row.get("metadata") or read_role(row.get("role")) is Role.TOOL:
                    read.append({**row, "content": ""})
            scanned += len(page)
            is_end = len(page) < SCAN_ROWS
        older_than = None if is_end else oldest
        messages = [m for m in _readable(matches[::-1]) if not self.excluded.has_whole(m)]
        tools = await self._read_tool_names(messages, read[::-1])
        return lambda selector: selector.matches(messages, tools, needles, older_than)

    async def _read_older(self, than: str | None) -> Sequence[Row]:
        """Read the newest rows, or those that precede a row, newest first."""
        history = self.sources.history
        if than is None:
            return (await history.recent(*self._scope, max_rows=SCAN_ROWS)).rows
        rows = await history.around(*self._scope, than, before=SCAN_ROWS, after=0)
        return rows[-2::-1]

    # --- ids and handles ---------------------------------------------------------------------

    async def _resolve(self, name: str, pointer: str) -> str:
        """Return the id of the message that a name means; raises `InvalidRequestError`."""
        rows, _ = await self._find([name])
        if not rows:
            detail = f"no message has the id {shown(name)}"
            raise InvalidRequestError(f"{pointer}: {detail}", [Problem(pointer, detail)])
        return str(rows[-1]["id"])

    async def _find(self, names: Sequence[str]) -> tuple[list[Row], set[str]]:
        """Return the rows that ids and handles mean, and the names that mean none.

        A handle is looked for among the summaries, then among the newest rows: those that a build
        can read, and some that may have been added since the handle was shown; then among the
        summaries that the present ones replaced.
        """
        rows = await self._rows(names)
        unknown = set(names) - {str(row["id"]) for row in rows}
        store = self.sources.summaries if unknown else None
        summaries = await store.read(*self._scope) if store else ()
        for summary in summaries:
            # handles of ids are those of version 1.0
            own = {
                summary.id,
                make_handle(summary.id),
                make_summary_handle(summary.message_ids[-1]),
            }
            if found := unknown & own:
                rows += await self._rows(summary.message_ids)
                unknown -= found
        if any(map(is_handle, unknown)):
            most = self.settings.memory.max_rows + NEW_ROWS
            page = await self.sources.history.recent(*self._scope, max_rows=most)
            for row in page.rows:
                if (handle := make_handle(str(row["id"]))) in unknown:
                    rows.append(row)
                    unknown.discard(handle)
        if any(map(is_handle, unknown)):
            rows += await self._find_replaced(summaries, unknown)
        return rows, unknown

    async def _find_replaced(self, summaries: Sequence[Summary], unknown: set[str]) -> list[Row]:
        """Return the rows that handles of replaced summaries mean, and take these out of unknown.

        The newest row that such a summary covered is known, the oldest isn't: so these are all
        summarised rows up to that one.
        """
        rows: list[Row] = []
        for summary in summaries:
            for count, row_id in enumerate(summary.message_ids, start=1):
                if (handle := make_summary_handle(row_id)) in unknown:
                    rows += await self._rows(summary.message_ids[:count])
                    unknown.discard(handle)
        return rows

    async def _rows(self, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids that builds may read, within the scope."""
        owner_key, conversation = self._scope
        rows = await self.sources.history.rows(owner_key, ids, pruned=False)
        return [row for row in rows if conversation in (None, row.get("conversation_id"))]

    # --- entries -----------------------------------------------------------------------------

    async def _read_tool_names(
        self, messages: Sequence[Message], rows: Sequence[Row] = ()
    ) -> ToolNames:
        """Return the names of tools by the ids of results that don't name theirs.

        The calls are looked for among ``rows``, which have all calls and results of a part of the
        history, then before the newest results.
        """
        nameless = [m.id for m in messages if m.role is Role.TOOL and not m.name]
        names = find_tool_names(read_rows(rows)) if nameless else {}
        for _ in range(MAX_CALL_READS):
            newest = next((id_ for id_ in reversed(nameless) if id_ not in names), None)
            if newest is None:
                break
            around = self.sources.history.around
            near = await around(*self._scope, newest, before=CALL_ROWS, after=0)
            names = {newest: "", **find_tool_names(read_rows(near)), **names}
        return names


def _readable(rows: Sequence[Row]) -> tuple[Message, ...]:
    """Read rows, without those of roles that no context shows."""
    return tuple(message for message in read_rows(rows) if message.role is not Role.OTHER)


def _searched_text(row: Row) -> str:
    """Return the text of a row with its calls, which few rows have."""
    return full_text(read_row(row)) if row.get("metadata") else read_content(row["content"])
