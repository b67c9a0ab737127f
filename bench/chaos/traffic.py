"""Requests of a run, and what became of them; read without our own code."""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis

from bench.names import STREAM, result_key

#: Owners that share the requests of a run; each has a history that grows.
OWNERS: Final = 200
#: Requests in one round trip.
BATCH: Final = 250


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that its number distinguishes from the others."""

    number: int
    #: In place of the default one; then there is a history from which it has to choose.
    strategy: str | None = None

    @property
    def id(self) -> str:
        """Return its id."""
        return f"msg_{self.number}"

    @property
    def owner_key(self) -> str:
        """Return its owner."""
        return f"owner_{self.number % OWNERS}"

    @property
    def reply_to(self) -> str:
        """Return the list that holds all that was replied to it, and nothing else."""
        return f"context.reply.{self.number}"

    @property
    def result_key(self) -> str:
        """Return where its answer is stored."""
        return result_key(self.owner_key, self.id)

    @property
    def payload(self) -> bytes:
        """Return it as it is sent; it may wait for an hour."""
        past = [{"id": "p", "role": "HUMAN", "content": "Hello"}]
        context = {"strategy": self.strategy, "past": past} if self.strategy else {}
        request = {
            "id": self.id,
            "owner_key": self.owner_key,
            "content": {"current_input": f"This is number {self.number}.", "context": context},
            "metadata": {"reply_to": self.reply_to, "reply_kind": "list", "timeout_ms": 3_600_000},
        }
        return json.dumps(request).encode()


@dataclass(slots=True)
class Tally:
    """What became of requests."""

    #: Those with a stored answer.
    answered: int = 0
    #: Those of them whose answer is an error.
    errors: int = 0
    #: Those without.
    lost: int = 0
    #: Distinct answers, stored or sent, beyond the first of each request.
    duplicates: int = 0
    #: Replies beyond the first of each request, most of them the same answer again.
    sent_again: int = 0

    def add(self, stored: dict[str, Any] | None, replies: Sequence[dict[str, Any]]) -> None:
        """Count one request."""
        reported = [*replies, *([stored] if stored else [])]
        distinct = {(each["id"], json.dumps(each["content"], sort_keys=True)) for each in reported}
        self.answered += stored is not None
        self.lost += stored is None
        self.errors += stored is not None and stored["content"]["status"] != "success"
        self.duplicates += max(len(distinct) - 1, 0)
        self.sent_again += max(len(replies) - 1, 0)


async def send(client: Redis, requests: Iterable[Asked]) -> dict[str, Asked]:
    """Add requests to the stream; returns each by its entry."""
    entries: dict[str, Asked] = {}
    for batch in batches(list(requests)):
        async with client.pipeline(transaction=False) as pipeline:
            for asked in batch:
                pipeline.xadd(STREAM, {"data": asked.payload})
            ids = await pipeline.execute()
        entries |= {entry.decode(): asked for entry, asked in zip(ids, batch, strict=True)}
    return entries


async def tally(client: Redis, requests: Iterable[Asked]) -> Tally:
    """Read what was stored for requests, and all that was replied to them."""
    counted = Tally()
    for batch in batches(list(requests)):
        async with client.pipeline(transaction=False) as pipeline:
            for asked in batch:
                pipeline.get(asked.result_key)
                pipeline.lrange(asked.reply_to, 0, -1)
            found = await pipeline.execute()
        for packed, replies in zip(found[::2], found[1::2], strict=True):
            stored = json.loads(zlib.decompress(packed))["response"] if packed else None
            counted.add(stored, [json.loads(reply) for reply in replies])
    return counted


def batches(requests: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
    """Yield requests in their order, in batches of one round trip."""
    for start in range(0, len(requests), BATCH):
        yield requests[start : start + BATCH]
