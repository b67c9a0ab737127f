"""Vectors of stored rows, and how similar rows are to a question by them."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from heapq import nlargest
from itertools import accumulate, chain, islice
from math import hypot
from struct import pack
from typing import Final, TypeVar

import structlog
from cachetools import LRUCache

from formatters.passages import split_pieces
from formatters.rows import read_content
from service.errors import EmbedderError, NoVectorError, StoreError
from service.ports.services import CompareVectors, Embedder, Vector
from service.ports.stores import NumberedVector, VectorStore, WaitingRows

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Rows that are embedded at a time, and texts that an embedder gets at once; a process that is
#: stopped loses this much work.
BATCH: Final = 32
#: Seconds between looks for new rows while there are none, and after a failure.
IDLE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 10.0
#: Digits of a similarity: machines compute vectors a little differently.
DIGITS: Final = 3
#: Vectors of an owner's newest rows that a question is compared with: 15 MB by MiniLM.
MAX_COMPARED: Final = 20_000
#: Vectors of all owners that are kept in memory; each needs 1 kB by MiniLM.
MAX_CACHED: Final = 60_000
#: Vectors from which on they are compared in a thread, so that the event loop stays free.
MANY_VECTORS: Final = 2_000
#: Bytes of a number of a packed vector, a float of 16 bits.
NUMBER_BYTES: Final = 2


class Similarity:
    """Embeds stored rows in the background, and questions that they are compared with."""

    def __init__(self, embedder: Embedder, store: VectorStore, compare: CompareVectors) -> None:
        self._embedder = embedder
        self._store = store
        self._compare = compare
        #: The vectors of owners' newest rows, newest first.
        self._cache: LRUCache[str, Sequence[NumberedVector]] = LRUCache(
            MAX_CACHED, getsizeof=lambda rows: max(_bytes_of(rows) // self._size, 1)
        )
        #: Bytes of a packed vector; known when the first question was embedded.
        self._size = NUMBER_BYTES
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
        self._size = NUMBER_BYTES * len(vector)
        return EmbeddedQuestion(self, owner_key, vector)

    async def read(self, owner_key: str, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors of rows by their ids."""
        return await self._store.read(owner_key, self._embedder.name, ids) if ids else {}

    async def read_newest(self, owner_key: str) -> Sequence[NumberedVector]:
        """Return the vectors of an owner's newest rows, newest first; reads those that are new."""
        model = self._embedder.name
        known = self._cache.get(owner_key, ())
        last = known[0].number if known else 0
        rows = await self._store.newest(owner_key, model, MAX_COMPARED, max(last - 1, 0))
        if known and rows and rows[-1] == known[0]:
            rows = [*rows[:-1], *known]
        elif known:  # the last row is gone: deleted, or erased with its owner
            rows = await self._store.newest(owner_key, model, MAX_COMPARED, 0)
        totals = [*accumulate(len(row.packed) for row in rows)]
        rows = rows[: bisect_right(totals, MAX_COMPARED * self._size)]
        with suppress(ValueError):  # larger than the whole cache
            self._cache[owner_key] = rows
        return rows

    async def compare(
        self, question: Vector, vectors: Iterable[tuple[T, bytes]]
    ) -> Iterable[tuple[T, Sequence[float]]]:
        """Compare with the vectors of rows whose vectors have the length of the question's."""
        size = NUMBER_BYTES * len(question)
        comparable = [(key, packed) for key, packed in vectors if packed and not len(packed) % size]
        if not comparable:
            return ()
        packed = [each for _, each in comparable]
        if sum(map(len, packed)) < MANY_VECTORS * size:
            cosines = self._compare(question, packed)
        else:
            cosines = await asyncio.to_thread(self._compare, question, packed)
        values = (round(cosine, DIGITS) for cosine in cosines)
        return [(key, [*islice(values, len(each) // size)]) for key, each in comparable]

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
        """Return the packed vectors of rows by id, one after the other; if refused, none.

        If all rows are refused, their texts are hardly the reason: `NoVectorError` is raised.
        """
        texts = {str(row["id"]): split_pieces(read_content(row["content"])) for row in waiting.rows}
        try:
            vectors = iter(await self._embed_pieces([*chain.from_iterable(texts.values())]))
        except NoVectorError:
            packed = {id_: await self._embed_alone(pieces) for id_, pieces in texts.items()}
            if not any(packed.values()):
                raise
            return packed
        return {id_: b"".join(islice(vectors, len(pieces))) for id_, pieces in texts.items()}

    async def _embed_alone(self, pieces: Sequence[str]) -> bytes:
        with suppress(NoVectorError):
            return b"".join(await self._embed_pieces(pieces))
        return b""

    async def _embed_pieces(self, pieces: Sequence[str]) -> Sequence[bytes]:
        return [
            pack_vector(vector)
            for first in range(0, len(pieces), BATCH)
            for vector in await self._embedder.embed(pieces[first : first + BATCH])
        ]


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
        best = ((max(values), number) for number, values in compared)
        return [number for _, number in nlargest(count, best)]

    async def compare(self, ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Return how similar the pieces of rows are, by id, as far as rows have vectors."""
        known = {row_id: self._read[row_id] for row_id in ids if row_id in self._read}
        others = [row_id for row_id in ids if row_id not in known]
        vectors = {**known, **await self._similarity.read(self._owner_key, others)}
        return dict(await self._similarity.compare(self._vector, vectors.items()))


def pack_vector(vector: Vector) -> bytes:
    """Return a vector of length 1 as floats of 16 bits, in little-endian order."""
    length = hypot(*vector) or 1.0
    return pack(f"<{len(vector)}e", *(number / length for number in vector))


def _bytes_of(rows: Iterable[NumberedVector]) -> int:
    return sum(len(row.packed) for row in rows)


@asynccontextmanager
async def running(similarity: Similarity) -> AsyncIterator[Similarity]:
    """Embed rows in the background until the context ends."""
    task = asyncio.create_task(similarity.run())
    try:
        yield similarity
    finally:
        task.cancel()
        await asyncio.wait([task])
