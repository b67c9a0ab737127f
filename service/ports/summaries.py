"""The port of stores of summaries, and the fingerprint of the rows that a summary covers."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cachetools import LRUCache

from formatters.model import Row, Summary
from service.wire.payload import canonical_json

#: Scopes that `FailedScopes` remembers.
MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Scope:
    """A history that has its own summaries: one conversation, or all of an owner's rows."""

    owner_key: str
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The state of a history that a new summary was made from; the store checks it again."""

    #: The ids of all summaries that the scope has.
    summaries: frozenset[str]
    #: The newest row that the summary covers, and how many rows the scope has up to and including
    #: it: a row that arrives late or is deleted changes the number.
    last_id: str
    rows: int


class SummaryStore(Protocol):
    """Summaries of histories, whose rows stay. Raises `StoreError`.

    Erasing an owner's history erases them. A summary never changes; a new one replaces it.
    """

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of the oldest rows that they cover."""
        ...

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, in one step; returns whether it was added.

        It is added only if the scope's state is as expected and the covered rows still have the
        summary's fingerprint.
        """
        ...

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were.

        Callers that remove rows from a history have to call it.
        """
        ...

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take a lease on summarising an owner's history; returns False if another holds it.

        The lease expires after ``seconds``. Its holder may renew it.
        """
        ...

    async def release(self, owner_key: str, token: str) -> None:
        """Give the lease back, if ``token`` still holds it."""
        ...


def fingerprint(rows: Iterable[Row]) -> str:
    """Return a hash of rows, in the order of a summary, that changes when one of them does."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(canonical_json(row))
    return digest.hexdigest()


class FailedScopes:
    """The scopes whose last summary failed, as far as this process knows."""

    def __init__(self) -> None:
        self._scopes: LRUCache[Scope, None] = LRUCache(MAX_REMEMBERED)

    def add(self, scope: Scope) -> None:
        """Add a scope; the oldest one is dropped beyond `MAX_REMEMBERED`."""
        self._scopes[scope] = None

    def discard(self, scope: Scope) -> None:
        """Remove a scope: a summary was made, or none is needed."""
        self._scopes.pop(scope, None)

    def __contains__(self, scope: Scope) -> bool:
        return scope in self._scopes
