"""Build again what was built before, and tell what has changed since."""

# ruff: noqa: ARG002 - it holds the rows of one owner and one reading, and is never written to
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final, NoReturn

from formatters.model import Row, Summary
from formatters.rows import read_content
from service.audit.compare import NameChanges, aligned, named_changes
from service.audit.manifest import Candidate, Manifest, MessageRecord, ground, make_manifest
from service.build.plan import Plan
from service.build.report import Built
from service.builder import ContextBuilder
from service.errors import ContextBuilderError, StoreError
from service.ports.stores import ArchivedRow, Archiving, HistoryPage, HistoryStats, HistoryStore
from service.ports.summaries import Expected, SummaryStore
from service.wire.protocol import SCHEMA_VERSION
from service.wire.request import BuildRequest, decode

_READ_ONLY: Final = "a snapshot can only be read"


class Snapshot:
    """The `HistoryStore` that gives all its rows to every reader; they are given oldest first."""

    def __init__(
        self, rows: Sequence[Row], not_read: int, starts: Mapping[str, int] | None = None
    ) -> None:
        self._rows = list(rows)
        self._not_read = not_read
        self._starts = starts or {}

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return all rows, newest first: they are what was read within the bounds."""
        rows = self._rows[::-1]
        ids = takewhile(self._starts.__contains__, (str(row["id"]) for row in rows))
        starts = [self._starts[id_] for id_ in ids]  # what a search had found has none
        return HistoryPage(
            rows=rows,
            total=len(rows) + self._not_read,
            # those of the layout that the build had
            starts=starts,
            native_starts=starts,
        )

    async def search(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        terms: Sequence[str],
        before: str,
        max_rows: int,
    ) -> list[Row]:
        """Return nothing: `recent` has given what was found then."""
        return []

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in their order."""
        named = {row["id"]: row for row in self._rows}
        return [named[name] for name in ids if name in named]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows, newest first."""
        return self._rows[::-1][:limit]

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Raise `StoreError`: what is past can't be written to."""
        raise StoreError(_READ_ONLY)

    async def erase(self, owner_key: str) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def expire(self, before: datetime, limit: int) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return nothing: nothing falls out of what is past."""
        return []

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count the rows."""
        return HistoryStats(rows=len(self._rows))


class SummarySnapshot:
    """The `SummaryStore` that has some of another's summaries, and is never written to."""

    def __init__(self, store: SummaryStore, ids: Collection[str]) -> None:
        self._store = store
        self._ids = ids

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return those of the summaries that there are still."""
        found = await self._store.read(owner_key, conversation_id)
        return [summary for summary in found if summary.id in self._ids]

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Put nothing."""
        return False

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Forget nothing."""
        return 0

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Give nobody the right to summarise what is past."""
        return False

    async def release(self, owner_key: str, token: str) -> None:
        """Do nothing."""


class NotReplayableError(ContextBuilderError, code="not_replayable"):
    """The build cannot be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A message that is sent on one side only, or with other words."""

    role: str
    #: The tag that it opens with, if any.
    block: str | None
    #: Its place in ``messages``, from 0, then and now; None where it isn't sent.
    then: int | None
    now: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A row of history that is decided on otherwise."""

    message_id: str
    #: Outcome and reason.
    then: tuple[str | None, str | None]
    now: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A version then and now."""

    then: str | int
    now: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of building again, and what has changed since the build."""

    build_id: str
    #: Whether the same messages and tools are sent.
    identical: bool
    messages: tuple[Difference, ...]
    decisions: tuple[Verdict, ...]
    #: Rows of history: added ones were left out, removed ones are gone.
    rows: NameChanges
    #: Whether the text of the input's row is another, and the profile.
    input: bool
    profile: bool
    tools: NameChanges
    warnings: NameChanges
    #: Dotted paths of settings, here and where it was built.
    settings: tuple[str, ...]
    #: Whether the strategy or one of its parameters is another.
    strategy: bool
    #: None where they are the same.
    package: Versions | None
    guard: Versions | None


async def replay(
    manifest: Manifest, builder: ContextBuilder, request: Mapping[str, Any] | None = None
) -> Replay:
    """Build again from the same rows; with the request itself, whatever it brought along.

    Raises:
        NotReplayableError: Something that is needed isn't kept, or is gone.
        StoreError: The history can't be read.
    """
    history = builder.history
    again = await made_again(manifest, history) if request is None else _given(manifest, request)
    try:
        built = await built_from(manifest, builder, again)
    except ContextBuilderError as error:
        _refuse(f"it can't be built any more: {error.code}: {error.detail}", error)
    now = make_manifest(built, ground(builder.settings))
    return _compared(manifest, now, await _added(manifest, built.plan, builder))


async def built_from(manifest: Manifest, builder: ContextBuilder, request: BuildRequest) -> Built:
    """Build a request on the rows and summaries that a build had read, and write nothing.

    Raises:
        StoreError: The history can't be read.
        ContextBuilderError: It can't be built.
    """
    ids = [candidate.id for candidate in manifest.candidates]
    starts = {each.id: each.start for each in manifest.candidates if each.start is not None}
    rows = await builder.history.rows(request.owner_key, ids)
    kept = builder.sources.summaries
    sources = replace(
        builder.sources,
        history=Snapshot(rows, manifest.read.not_read, starts),
        summaries=SummarySnapshot(kept, manifest.summaries) if kept else None,
    )
    return await replace(builder, sources=sources).built(request)


def sends_the_same(then: Manifest, now: Manifest) -> bool:
    """Tell whether two builds send the same messages and tools."""
    return _sent(then) == _sent(now) and [*then.tools.items()] == [*now.tools.items()]


# --- the request -----------------------------------------------------------------------------


async def made_again(manifest: Manifest, history: HistoryStore) -> BuildRequest:
    """Make the request again, with the input's text from the history.

    Raises:
        NotReplayableError: It brought along what isn't kept, or its input isn't in the history.
        StoreError: The history can't be read.
    """
    asked = manifest.request
    if asked.brought:
        what = ", ".join(asked.brought)
        _refuse(
            f"its request brought along what is not kept ({what}); the request itself is needed"
        )
    found = await history.rows(asked.owner_key, [asked.input_id])
    if not found:
        _refuse(
            f"its input, the row {asked.input_id!r}, is not in the history: it was erased or"
            " never recorded; the request itself is needed"
        )
    offset = asked.now.utcoffset() or timedelta()
    run = {
        "id": asked.run_id,
        "tools": asked.tools,
        "history": [{"id": asked.input_id, "content": read_content(found[0]["content"])}],
        "metadata": {
            "client_timestamp_utc": asked.now.isoformat(),
            "client_timezone_offset": -offset // timedelta(minutes=1),
            "context": asked.options,
        },
    }
    return _decoded(
        {
            "schema_version": SCHEMA_VERSION,
            "id": asked.id,
            "run_id": asked.run_id,
            "owner_key": asked.owner_key,
            "conversation_id": asked.conversation_id,
            "content": run,
        },
        manifest,
    )


def _given(manifest: Manifest, request: Mapping[str, Any]) -> BuildRequest:
    """Return the request that was given, if it is the one that was built."""
    # a derived id isn't in it; what it was derived from may have been written differently
    decoded = _decoded({**request, "id": manifest.request.id}, manifest)
    same = (manifest.request.owner_key, manifest.request.fingerprint)
    if (decoded.owner_key, decoded.fingerprint) != same:
        _refuse("the request that was given is not the one that was built")
    return decoded


def _decoded(request: Mapping[str, Any], manifest: Manifest) -> BuildRequest:
    try:
        return decode(json.dumps(request).encode(), received_at=manifest.request.now)
    except ContextBuilderError as error:
        _refuse(f"its request is not understood any more: {error.detail}", error)


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    raise NotReplayableError(why) from cause


# --- what has changed ------------------------------------------------------------------------


async def _added(manifest: Manifest, plan: Plan, builder: ContextBuilder) -> list[str]:
    """Return the ids of rows that a build would read today, oldest first, and didn't then."""
    if "past" in manifest.request.brought:
        return []
    page = await builder.history.recent(
        manifest.request.owner_key, plan.conversation_id, max_rows=builder.settings.memory.max_rows
    )
    ids = [str(row["id"]) for row in page.rows]
    known = {candidate.id for candidate in manifest.candidates}
    # among rows that a search has found others were left unread
    whole = {candidate.id for candidate in manifest.candidates[manifest.read.found :]}
    oldest = max((place for place, name in enumerate(ids) if name in whole), default=0)
    newer = ids[:oldest] if manifest.read.rows or manifest.read.not_read else ids
    return [name for name in newer[::-1] if name not in known | {manifest.request.input_id}]


def _compared(then: Manifest, now: Manifest, added: Sequence[str]) -> Replay:
    rows = named_changes(_hashes(then), _hashes(now))
    settings = named_changes(then.ground.settings, now.ground.settings)
    return Replay(
        build_id=then.build_id,
        identical=sends_the_same(then, now),
        messages=tuple(_differences(then.messages, now.messages)),
        decisions=tuple(_verdicts(then.candidates, now.candidates)),
        rows=replace(rows, added=tuple(added)),
        input=then.request.input != now.request.input,
        profile=then.profile != now.profile,
        tools=named_changes(then.tools, now.tools),
        warnings=named_changes(dict.fromkeys(then.warnings), dict.fromkeys(now.warnings)),
        settings=(*settings.changed, *settings.added, *settings.removed),
        strategy=then.strategy != now.strategy,
        package=_versions(then.ground.package, now.ground.package),
        guard=_versions(then.ground.guard, now.ground.guard),
    )


def _hashes(manifest: Manifest) -> dict[str, object]:
    return {candidate.id: candidate.hash for candidate in manifest.candidates}


def _sent(manifest: Manifest) -> list[tuple[tuple[str, str | None], str]]:
    return [((each.role, each.block), each.hash) for each in manifest.messages]


def _differences(
    then: Sequence[MessageRecord], now: Sequence[MessageRecord]
) -> Iterator[Difference]:
    sides = [[((each.role, each.block), each.hash) for each in side] for side in (then, now)]
    for before, after in aligned(*sides):
        either = now[after] if after is not None else then[before or 0]
        yield Difference(role=either.role, block=either.block, then=before, now=after)


def _verdicts(then: Sequence[Candidate], now: Sequence[Candidate]) -> Iterator[Verdict]:
    later = {each.id: (each.decision, each.reason) for each in now}
    for each in then:
        before = (each.decision, each.reason)
        if each.id in later and later[each.id] != before:
            yield Verdict(message_id=each.id, then=before, now=later[each.id])


def _versions(then: str | int, now: str | int) -> Versions | None:
    return None if then == now else Versions(then=then, now=now)
