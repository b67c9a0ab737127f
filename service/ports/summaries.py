"""Where summaries are kept: the port, and what tells that the rows they cover are unchanged."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from formatters.model import Row, Summary
from service.aio import Remembered
from service.wire.payload import canonical

#: Scopes that are remembered to lack a summary.
REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Scope:
    """A history that is summarised by itself: a conversation's, or all of an owner's."""

    owner_key: str
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What has to be so still when a summary is put beside a history."""

    #: The ids of all summaries that the scope has.
    summaries: frozenset[str]
    #: The newest row that is covered, and how many rows the scope has up to it, itself included:
    #: a row that came late, or went, changes the number.
    last_id: str
    rows: int


class SummaryStore(Protocol):
    """Summaries beside the history, never instead of it. Raises `StoreError`.

    They go with their owner's history. A summary never changes; it is replaced by another one.
    """

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of the oldest rows that they cover."""
        ...

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, in one step; returns whether that was done.

        Nothing is done unless all is as expected and the covered rows still have the summary's
        fingerprint.
        """
        ...

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were.

        Whoever takes rows out of a history has to call it.
        """
        ...

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take the right to summarise an owner's history; returns False where another has it.

        It ends by itself after so many seconds, whatever becomes of who took it.
        """
        ...

    async def release(self, owner_key: str, token: str) -> None:
        """Give back the right to summarise, if it is still this one's."""
        ...


def fingerprint(rows: Iterable[Row]) -> str:
    """Return what tells whether rows, given in the order of a summary, have changed."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(canonical(row))
    return digest.hexdigest()


class FailedScopes:
    """The scopes for which the last summary could not be made, as far as this process knows."""

    def __init__(self) -> None:
        self._scopes: Remembered[Scope, None] = Remembered(REMEMBERED)

    def add(self, scope: Scope) -> None:
        """Remember a scope, and forget the oldest of too many."""
        self._scopes[scope] = None

    def discard(self, scope: Scope) -> None:
        """Forget a scope: a summary was made, or none is needed."""
        self._scopes.pop(scope, None)

    def __contains__(self, scope: Scope) -> bool:
        return scope in self._scopes
