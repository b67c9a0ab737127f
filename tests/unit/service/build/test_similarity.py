"""Rows get a vector each, in the background, and are compared with questions by it."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from formatters.model import Row
from service.adapters.memory.store import MemoryHistory, MemoryVectors
from service.build import similarity as module
from service.build.similarity import BATCH, Similarity, pack_vector, running
from service.errors import NoVectorError
from service.ports.services import Vector
from service.ports.stores import NumberedVector
from tests.embedder import Concepts
from tests.stores import Clock, Words
from tests.support import row


def compare(question: Vector, rows: Any) -> list[float]:
    """Return dot products, in Python."""
    unpacked = [struct.unpack(f"<{len(packed) // 2}e", packed) for packed in rows]
    return [sum(a * b for a, b in zip(question, each, strict=True)) for each in unpacked]


class Store(MemoryVectors):
    """A store in memory that can be like one on another machine."""

    is_local = True


@pytest.fixture
def history() -> MemoryHistory:
    """Give an empty history."""
    return MemoryHistory(Words, Clock())


@pytest.fixture
def store(history: MemoryHistory) -> Store:
    """Give the vectors of the history."""
    return Store(history)


def rows(*texts: str) -> list[Row]:
    """Return rows with these texts, m0 and so on."""
    return [row(number, "HUMAN", text) for number, text in enumerate(texts)]


async def compared(
    similarity: Similarity, question: str, *ids: str, owner: str = "o"
) -> Mapping[str, float]:
    """Return how similar rows are to a question."""
    asked = await similarity.ask(owner, question)
    assert asked
    return await asked.compare(ids)


async def test_a_question_finds_what_is_similar(history: MemoryHistory, store: Store) -> None:
    """A local store's rows all have a vector by then; each is computed once."""
    embedder = Concepts()
    similarity = Similarity(embedder, store, compare)
    await history.append("o", rows("the hut", "rain", "a boat"))

    for _ in range(2):
        found = await compared(similarity, "which cabin", "m0", "m1", "m2", "gone")
        assert found.keys() == {"m0", "m1", "m2"}
        assert max(found, key=found.__getitem__) == "m0"

    assert embedder.calls == [["the hut", "rain", "a boat"]]
    assert await compared(similarity, "which cabin", "m0", owner="other") == {}


async def test_rows_of_another_model_are_computed_again(
    history: MemoryHistory, store: Store
) -> None:
    """Vectors of two models can't be compared."""
    await history.append("o", rows("the hut"))
    await compared(Similarity(Concepts("old"), store, compare), "cabin", "m0")
    await history.append("o", [row(1, "HUMAN", "a chalet")])
    new = Concepts("new")

    assert len(await compared(Similarity(new, store, compare), "cabin", "m0", "m1")) == 2
    assert new.calls == [["the hut", "a chalet"]]


async def test_many_rows_are_embedded_in_batches(history: MemoryHistory, store: Store) -> None:
    """So that a stop loses little."""
    embedder = Concepts()
    await history.append("o", rows(*(f"boat {n}" for n in range(BATCH + 5))))
    await Similarity(embedder, store, compare).ask("o", "sail")

    assert list(map(len, embedder.calls)) == [BATCH, 5]


async def test_a_refused_text_is_embedded_alone(history: MemoryHistory, store: Store) -> None:
    """The others of its batch get their vectors, and it isn't tried again."""
    embedder = Concepts()
    embedder.refused = "secret"
    similarity = Similarity(embedder, store, compare)
    await history.append("o", rows("the hut", "a secret", "rain"))

    found = await compared(similarity, "cabin", "m0", "m1", "m2")
    tried = len(embedder.calls)
    await compared(similarity, "cabin", "m0")

    assert found.keys() == {"m0", "m2"}
    assert len(embedder.calls) == tried
    assert await compared(similarity, "cabin", "m1") == {}


async def test_a_refusal_of_everything_is_a_failure(history: MemoryHistory, store: Store) -> None:
    """The fault is in the settings rather than in the texts, which are tried again."""
    embedder = Concepts()
    embedder.refused = "the"
    similarity = Similarity(embedder, store, compare)
    await history.append("o", rows("the hut", "the rain"))
    with pytest.raises(NoVectorError):
        await similarity.ask("o", "cabin")

    embedder.refused = ""
    assert len(await compared(similarity, "cabin", "m0", "m1")) == 2


async def test_vectors_of_another_length_are_left_out(history: MemoryHistory, store: Store) -> None:
    """A model may change under its name."""
    await history.append("o", rows("the hut", "rain"))
    similarity = Similarity(Concepts(), store, compare)
    await similarity.ask("o", "cabin")
    history.owner("o").vectors["m0"] = ("concepts", b"\0\0")

    assert (await compared(similarity, "cabin", "m0", "m1")).keys() == {"m1"}


async def test_a_store_elsewhere_is_not_waited_for(
    history: MemoryHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are embedded in the background, through outages; each is logged once."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(Store, "is_local", False)
    embedder = Concepts()
    similarity = Similarity(embedder, Store(history), compare)
    await history.append("o", rows("the hut"))

    assert await compared(similarity, "cabin", "m0") == {}
    embedder.fails = True
    with capture_logs() as logs:
        async with running(similarity):
            while len(embedder.calls) < 3:  # noqa: ASYNC110 - the loop emits no event
                await asyncio.sleep(0)
            embedder.fails = False
            while not await compared(similarity, "cabin", "m0"):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0)
    assert [entry["reason"] for entry in logs] == ["the model is away"]


async def test_an_embedder_may_raise_anything(
    history: MemoryHistory, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are tried again, and the log has where it failed."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    embedder = Concepts()
    embedder.broken = True
    await history.append("o", rows("the hut"))

    with capture_logs() as logs:
        async with running(Similarity(embedder, store, compare)):
            while len(embedder.calls) < 2:  # noqa: ASYNC110 - the loop emits no event
                await asyncio.sleep(0)
    assert [(entry["reason"], entry["exc_info"]) for entry in logs] == [("broken", True)]


async def test_the_nearest_rows_are_known_by_their_numbers(
    history: MemoryHistory, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best first, and of equal ones the newer; of one conversation if requested."""
    monkeypatch.setattr(module, "MANY_ROWS", 2)
    similarity = Similarity(Concepts(), store, compare)
    await history.append("o", rows("a hut", "rain", "a boat", "the hut"), conversation_id="x")
    await history.append("o", [row(9, "HUMAN", "my cabin, a cabin")], conversation_id="y")
    asked = await similarity.ask("o", "which cabin")
    assert asked

    assert await asked.nearest("x", 2) == [4, 1]
    assert await asked.nearest(None, 9) == [5, 4, 1, 3, 2]
    assert await asked.nearest("z", 9) == []


class Counted(Store):
    """Counts the vectors that are read."""

    read_rows = 0

    async def newest(
        self, owner_key: str, model: str, limit: int, after: int
    ) -> Sequence[NumberedVector]:
        """Read them."""
        found = await super().newest(owner_key, model, limit, after)
        self.read_rows += len(found)
        return found


async def test_the_newest_vectors_are_kept(history: MemoryHistory) -> None:
    """Vectors of new rows are added; an erased or restarted history is read again."""
    counted = Counted(history)
    similarity = Similarity(Concepts(), counted, compare)
    read = []

    async def nearest() -> list[int]:
        asked = await similarity.ask("o", "cabin")
        assert asked
        found = await asked.nearest(None, 9)
        read.append(counted.read_rows)
        counted.read_rows = 0
        return found

    await history.append("o", rows("hut", "rain", "boat"))
    assert await nearest() == [1, 3, 2]
    await history.append("o", [row(7, "HUMAN", "my cabin")])
    assert await nearest() == [4, 1, 3, 2]
    await history.prune("o", ["m7"])
    assert await nearest() == [1, 3, 2]
    await history.erase("o")
    assert await nearest() == []
    await history.append("o", rows("boat", "rain", "hut"))
    assert await nearest() == [3, 2, 1]
    assert read == [3, 2, 3, 0, 3]


async def test_restored_rows_are_compared_again(history: MemoryHistory) -> None:
    """After some seconds, in which only newer rows are looked for."""
    now = [0.0]
    similarity = Similarity(Concepts(), Store(history), compare, clock=lambda: now[0])

    async def nearest() -> list[int]:
        asked = await similarity.ask("o", "cabin")
        assert asked
        return await asked.nearest(None, 9)

    await history.append("o", rows("hut", "rain", "boat"))
    await history.prune("o", ["m0"])
    assert await nearest() == [3, 2]
    await history.restore("o", ["m0"])
    for now[0] in (10.0, 29.0):
        assert await nearest() == [3, 2]
    now[0] = 30.0
    assert await nearest() == [1, 3, 2]


async def test_few_owners_are_kept(history: MemoryHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used last; a history that alone has no room is not kept."""
    monkeypatch.setattr(module, "MAX_CACHED", 3)
    similarity = Similarity(Concepts(), Store(history), compare)
    for owner, size in (("a", 2), ("b", 1), ("c", 2), ("d", 4)):
        await history.append(owner, rows(*(f"boat {n}" for n in range(size))))
        asked = await similarity.ask(owner, "sail")
        assert asked
        assert len(await asked.nearest(None, 9)) == size

    assert set(similarity._cache) == {"b", "c"}


def test_a_packed_vector_has_length_one() -> None:
    """In two bytes a number; nothing has no direction."""
    assert struct.unpack("<2e", pack_vector([3.0, 4.0])) == pytest.approx((0.6, 0.8), abs=1e-3)
    assert pack_vector([0.0]) == b"\0\0"
