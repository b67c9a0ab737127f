"""Vectors of stored rows, and how similar rows are to a question by them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from heapq import nlargest
from math import hypot
from operator import itemgetter
from struct import pack
from time import monotonic
from typing import Final, TypeVar

import structlog
from cachetools import TLRUCache

from formatters.rows import read_content
from service.errors import EmbedderError, NoVectorError, StoreError
from service.ports.services import CompareVectors, Embedder, Vector
from service.ports.stores import NumberedVector, VectorStore, WaitingRows

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Rows that are embedded at a time; a process that is stopped loses this much work.
BATCH: Final = 32
#: Seconds between looks for new rows while there are none, and after a failure.
IDLE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 10.0
#: Digits of a similarity: machines compute vectors a little differently.
DIGITS: Final = 3
#: Rows of an owner, the newest ones, that a question is compared with: 15 MB of vectors by MiniLM.
MAX_COMPARED_ROWS: Final = 20_000
#: Rows of all owners whose vectors are kept in memory; each needs 1 kB by MiniLM.
MAX_CACHED: Final = 60_000
#: Seconds after which all of an owner's vectors are read again: rows between them may have been
#: restored or got their vectors late, and others may have been erased.
CACHED_SECONDS: Final = 30.0
#: Rows from which on they are compared in a thread, so that the event loop stays free.
MANY_ROWS: Final = 2_000
#: Bytes of a number of a packed vector, a float of 16 bits.
NUMBER_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class _Cached:
    """The vectors of an owner's newest rows, newest first, and when all of them were read."""

    rows: Sequence[NumberedVector]
    at: float


class Similarity:
    """Embeds stored rows in the background, and questions that they are compared with."""

    def __init__(
        self,
        embedder: Embedder,
        store: VectorStore,
        compare: CompareVectors,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._embedder = embedder
        self._store = store
        self._compare = compare
        self._cache: TLRUCache[str, _Cached] = TLRUCache(
            MAX_CACHED,
            ttu=lambda _owner, cached, _now: cached.at + CACHED_SECONDS,
            timer=clock,
            getsizeof=lambda cached: max(len(cached.rows), 1),
        )
        self._clock = clock
        self._lock = asyncio.Lock()
        self._swept = False
        store.follow()

    @property
    def waits(self) -> bool:
        """Return whether `ask` waits until all rows of the owner have a vector."""
        return self._store.is_local

    async def ask(self, owner_key: str, question: str) -> "EmbeddedQuestion | None":
        """Embed a question about an owner's rows; None if it has no vector.

        Raises `EmbedderError` or `StoreError`.
        """
        while self.waits and await self._embed_next(owner_key):
            pass
        try:
            (vector,) = await self._embedder.embed([question], question=True)
        except NoVectorError:
            return None
        return EmbeddedQuestion(self, owner_key, vector)

    async def read(self, owner_key: str, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors of rows by their ids."""
        return await self._store.read(owner_key, self._embedder.name, ids) if ids else {}

    async def read_newest(self, owner_key: str) -> Sequence[NumberedVector]:
        """Return the vectors of an owner's newest rows, newest first; reads those that are new.

        After `CACHED_SECONDS`, it reads all of them again.
        """
        model, at = self._embedder.name, self._clock()
        cached = self._cache.get(owner_key)
        known = cached.rows if cached else ()
        last = known[0].number if known else 0
        rows = await self._store.newest(owner_key, model, MAX_COMPARED_ROWS, max(last - 1, 0))
        if cached and known and rows and rows[-1] == known[0]:
            rows, at = [*rows[:-1], *known][:MAX_COMPARED_ROWS], cached.at
        elif known:  # the last row is gone: deleted, or erased with its owner
            rows = await self._store.newest(owner_key, model, MAX_COMPARED_ROWS, 0)
        with suppress(ValueError):  # larger than the whole cache
            self._cache[owner_key] = _Cached(rows, at)
        return rows

    async def compare(
        self, question: Vector, vectors: Iterable[tuple[T, bytes]]
    ) -> Iterable[tuple[T, float]]:
        """Compare with the vectors that have the length of the question's."""
        size = NUMBER_BYTES * len(question)
        comparable = [(key, packed) for key, packed in vectors if len(packed) == size]
        if not comparable:
            return ()
        packed = [each for _, each in comparable]
        if len(packed) < MANY_ROWS:
            cosines = self._compare(question, packed)
        else:
            cosines = await asyncio.to_thread(self._compare, question, packed)
        pairs = zip(comparable, cosines, strict=True)
        return [(key, round(value, DIGITS)) for (key, _), value in pairs]

    async def run(self) -> None:
        """Embed rows until cancelled; failures are logged, once for each outage."""
        failed = False
        while True:
            try:
                seconds = 0.0 if await self._embed_next() else IDLE_SECONDS
                failed = False
            except Exception as error:  # if an embedder fails, rows are ranked by words alone
                known = isinstance(error, EmbedderError | StoreError)
                if not failed:
                    log.warning("vectors.interrupted", reason=str(error), exc_info=not known)
                failed, seconds = True, PAUSE_SECONDS
            await asyncio.sleep(seconds)

    async def _embed_next(self, owner_key: str | None = None) -> bool:
        """Embed some rows that have no vector; return False if there are none."""
        async with self._lock:
            model = self._embedder.name
            if not self._swept:
                await self._store.queue_missing(model)
                self._swept = True
            waiting = await self._store.take(model, BATCH, owner_key)
            if waiting:
                await self._store.put(waiting, model, await self._embed(waiting))
        return waiting is not None

    async def _embed(self, waiting: WaitingRows) -> Mapping[str, bytes]:
        """Return packed vectors by id; those of texts that are refused are empty.

        If all are refused, their texts are hardly the reason: `NoVectorError` is raised.
        """
        texts = {str(row["id"]): read_content(row["content"]) for row in waiting.rows}
        try:
            vectors = await self._embedder.embed(list(texts.values()))
        except NoVectorError:
            packed = {id_: await self._embed_alone(text) for id_, text in texts.items()}
            if not any(packed.values()):
                raise
            return packed
        return {id_: pack_vector(vector) for id_, vector in zip(texts, vectors, strict=True)}

    async def _embed_alone(self, text: str) -> bytes:
        with suppress(NoVectorError):
            (vector,) = await self._embedder.embed([text])
            return pack_vector(vector)
        return b""


class EmbeddedQuestion:
    """A question with its vector, to be compared with an owner's rows. Raises `StoreError`."""

    def __init__(self, similarity: Similarity, owner_key: str, vector: Vector) -> None:
        self._similarity = similarity
        self._owner_key = owner_key
        self._vector = vector
        self._read: dict[str, bytes] = {}

    async def nearest(self, conversation_id: str | None, count: int) -> list[int]:
        """Return the numbers of the most similar of the newest rows, the best first."""
        newest = await self._similarity.read_newest(self._owner_key)
        self._read = {row.id: row.packed for row in newest}
        rows = [
            (row.number, row.packed)
            for row in newest
            if conversation_id in (None, row.conversation_id)
        ]
        compared = await self._similarity.compare(self._vector, rows)
        return [number for number, _ in nlargest(count, compared, key=itemgetter(1, 0))]

    async def compare(self, ids: Sequence[str]) -> Mapping[str, float]:
        """Return how similar rows are, by id, as far as they have vectors."""
        known = {row_id: self._read[row_id] for row_id in ids if row_id in self._read}
        others = [row_id for row_id in ids if row_id not in known]
        vectors = {**known, **await self._similarity.read(self._owner_key, others)}
        return dict(await self._similarity.compare(self._vector, vectors.items()))


def pack_vector(vector: Vector) -> bytes:
    """Return a vector of length 1 as floats of 16 bits, in little-endian order."""
    length = hypot(*vector) or 1.0
    return pack(f"<{len(vector)}e", *(number / length for number in vector))


@asynccontextmanager
async def running(similarity: Similarity) -> AsyncIterator[Similarity]:
    """Embed rows in the background until the context ends."""
    task = asyncio.create_task(similarity.run())
    try:
        yield similarity
    finally:
        task.cancel()
        await asyncio.wait([task])
