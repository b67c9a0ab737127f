"""The contract of every store for vectors and for rows that have none."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from formatters.model import Row
from service.ports.stores import SearchRequest, Stores, VectorStore, WaitingRows
from tests.integration.conftest import OpenStore
from tests.integration.test_retention_contract import minute
from tests.integration.test_store_contract import at, row
from tests.stores import Clock, Words

ODD = 'b\\\0"'


@dataclass(frozen=True)
class Stage:
    """A store that is followed, and its clock."""

    stores: Stores
    clock: Clock

    @property
    def vectors(self) -> VectorStore:
        """Return the store of vectors."""
        return self.stores.vectors

    async def append(self, owner: str, *names: str, **fields: object) -> None:
        """Store rows with these ids."""
        rows: list[Row] = [row(name, at(n), **fields) for n, name in enumerate(names)]
        await self.stores.history.append(owner, rows)

    async def taken(self, model: str = "m", limit: int = 9) -> tuple[str, str] | None:
        """Take rows, and put a vector of each; returns the owner and the ids."""
        waiting = await self.vectors.take(model, limit)
        if waiting is None:
            return None
        await self.put(waiting, model)
        return waiting.owner_key, names(waiting)

    async def put(self, waiting: WaitingRows, model: str = "m") -> None:
        """Put vectors that identify model and row."""
        made = {str(each["id"]): f"{model}:{each['id']}".encode() for each in waiting.rows}
        await self.vectors.put(waiting, model, made)

    async def read(self, owner: str, *ids: str, model: str = "m") -> str:
        """Return the vectors of rows, in their order."""
        found = await self.vectors.read(owner, model, ids)
        return " ".join(found[each].decode() for each in ids if each in found)


@pytest.fixture
async def stage(open_store: OpenStore, clock: Clock) -> AsyncIterator[Stage]:
    """Open an empty store of each kind, and follow it."""
    async with open_store(Words) as stores:
        stores.vectors.follow()
        yield Stage(stores, clock)


def names(waiting: WaitingRows | None) -> str:
    """Return the ids of waiting rows."""
    return " ".join(str(each["id"]) for each in waiting.rows) if waiting else ""


async def test_rows_wait_until_they_have_a_vector(stage: Stage) -> None:
    """In the order of their arrival, some at a time."""
    assert await stage.taken() is None
    await stage.append("o", "a", ODD, "c")

    assert await stage.taken(limit=2) == ("o", f"a {ODD}")
    assert await stage.read("o", "c", ODD, "a", "gone") == f"m:{ODD} m:a"
    assert await stage.taken() == ("o", "c")
    assert await stage.taken() is None
    await stage.append("o", "a", "d")
    assert await stage.taken() == ("o", "d")


async def test_a_vector_is_its_owners_alone(stage: Stage) -> None:
    """For any ids that others use."""
    for owner in ("o", "O", "o\0"):
        await stage.append(owner, "a")
    assert {(await stage.taken() or "?")[0] for _ in range(3)} == {"o", "O", "o\0"}

    assert await stage.read("o", "a") == "m:a"
    assert await stage.read("other", "a") == ""


async def test_only_what_is_said_gets_a_vector(stage: Stage) -> None:
    """No results of tools, no empty rows, and no pruned ones until they are restored."""
    calling = {"tool_calls": [{"id": "1", "name": "look", "arguments": {"where": "boat"}}]}
    await stage.append("o", "tool", role="TOOL")
    await stage.append("o", "empty", content="")
    await stage.append("o", *[f"call{n}" for n in range(9)], content="", metadata=calling)
    await stage.append("o", *[f"dots{n}" for n in range(9)], content="...", metadata=calling)
    await stage.append("o", "a", "b", metadata=calling)
    await stage.append("o", "c")
    await stage.stores.history.prune("o", ["b"])

    assert await stage.taken() == ("o", "a c")
    await stage.stores.history.restore("o", ["b"])
    assert await stage.taken() == ("o", "b")
    assert await stage.taken() is None
    await stage.append("o", "result", role="TOOL")
    await stage.append("o", "last call", content="", metadata=calling)
    await stage.append("o", "d")
    for limit in (9, 2):
        newest = await stage.vectors.newest("o", "m", limit, 0)
        assert [each.id for each in newest] == ["c", "b", "a"][: limit - 1]


async def test_a_row_that_is_restored_meanwhile_is_not_forgotten(stage: Stage) -> None:
    """Though a process just embeds the rows around it."""
    await stage.append("o", "a", "b", "c")
    await stage.stores.history.prune("o", ["b"])
    waiting = await stage.vectors.take("m", 9)
    await stage.stores.history.restore("o", ["b"])
    assert waiting
    await stage.put(waiting)

    assert await stage.taken() == ("o", "b")
    assert await stage.read("o", "a", "b", "c") == "m:a m:b m:c"


async def test_rows_that_come_meanwhile_wait_too(stage: Stage) -> None:
    """The owner stays in the queue."""
    await stage.append("o", "a")
    waiting = await stage.vectors.take("m", 9)
    await stage.append("o", "b")
    assert waiting
    await stage.put(waiting)

    assert await stage.taken() == ("o", "b")


async def test_another_model_begins_again(stage: Stage) -> None:
    """Its vectors replace the former ones, which nobody could compare with them."""
    await stage.append("o", "a", "b")
    assert await stage.taken("m") == ("o", "a b")
    await stage.append("o", "c")

    assert await stage.taken("n", limit=2) == ("o", "a b")
    assert await stage.taken("n") == ("o", "c")
    assert await stage.read("o", "a", "b", "c", model="m") == ""
    assert await stage.read("o", "a", "b", "c", model="n") == "n:a n:b n:c"


async def test_an_erased_owner_has_no_vectors(stage: Stage) -> None:
    """Nor do rows that come under the same ids later, also if some were just embedded."""
    await stage.append("o", "a", "b")
    await stage.append("p", "a")
    await stage.taken()
    await stage.taken()
    await stage.append("o", "c")
    waiting = await stage.vectors.take("m", 9)
    await stage.stores.history.erase("o")
    assert waiting
    await stage.put(waiting)

    assert await stage.read("o", "a", "b", "c") == ""
    assert await stage.read("p", "a") == "m:a"
    await stage.append("o", "a")
    assert await stage.read("o", "a") == ""
    assert await stage.taken() == ("o", "a")


async def test_vectors_expire_with_their_rows(stage: Stage) -> None:
    """Those of the other rows stay; an owner without rows waits for nothing."""
    await stage.append("o", "a", "b", "c")
    await stage.taken(limit=2)
    assert await stage.stores.history.expire(minute(1), 9) == 1
    await stage.append("o", "a")

    assert await stage.read("o", "a", "b") == "m:b"
    assert await stage.taken() == ("o", "c a")
    assert await stage.stores.history.expire(minute(9), 9) == 3
    assert await stage.taken() is None
    await stage.append("o", "a")
    assert await stage.taken() == ("o", "a")


async def test_a_row_that_expires_meanwhile_gets_no_vector(stage: Stage) -> None:
    """The others do."""
    await stage.append("o", "a", "b")
    waiting = await stage.vectors.take("m", 9)
    await stage.stores.history.expire(minute(1), 9)
    assert waiting
    await stage.put(waiting)
    await stage.append("o", "a")

    assert await stage.read("o", "a", "b") == "m:b"


@pytest.mark.parametrize("is_erased", [True, False])
async def test_another_text_under_the_id_gets_a_vector_of_its_own(
    stage: Stage, is_erased: bool
) -> None:
    """If a row is deleted while it is embedded, its vector isn't stored for its successor."""
    await stage.append("o", "a", "b")
    waiting = await stage.vectors.take("m", 9)
    history = stage.stores.history
    await (history.erase("o") if is_erased else history.expire(minute(1), 9))
    await stage.append("o", "a", content="another text")
    assert waiting
    await stage.put(waiting)

    assert await stage.read("o", "a", "b") == ("" if is_erased else "m:b")
    assert await stage.taken() == ("o", "a")


async def test_an_owner_whose_rows_get_no_vector_holds_up_no_other(stage: Stage) -> None:
    """As if an embedder refuses them."""
    await stage.append("o", "a")
    await stage.append("p", "b")
    taken = {names(await stage.vectors.take("m", 9)) for _ in range(2)}

    assert taken == {"a", "b"}


async def test_rows_of_a_process_that_dies_are_taken_again(stage: Stage) -> None:
    """After a minute; until then other processes take other owners."""
    if stage.vectors.is_local:
        return
    await stage.append("o", "a")
    await stage.append("p", "b")
    taken = {names(await stage.vectors.take("m", 9)) for _ in range(3)}
    stage.clock.now += timedelta(seconds=61)

    assert taken == {"a", "b", ""}
    assert {(await stage.taken() or "?")[1] for _ in range(2)} == {"a", "b"}


async def test_rows_from_before_are_queued(open_store: OpenStore, clock: Clock) -> None:
    """Those that were stored while no process followed, and those of another model."""
    async with open_store(Words) as stores:
        before = Stage(stores, clock)
        await before.append("o", "a")
        if not before.vectors.is_local:
            assert await before.taken() is None
        await before.vectors.queue_missing("m")
        assert await before.taken() == ("o", "a")

        await before.append("o", "b")
        await before.vectors.queue_missing("m")
        assert await before.taken() == ("o", "b")
        await before.vectors.queue_missing("m")
        assert await before.taken() is None

        if not before.vectors.is_local:
            await before.vectors.queue_missing("n")
            assert await before.taken("n") == ("o", "a b")


async def test_one_owners_rows_can_be_taken(stage: Stage) -> None:
    """Of a store in this process, where builds wait for them."""
    if not stage.vectors.is_local:
        return
    await stage.append("o", "a")
    await stage.append("p", "b")

    assert names(await stage.vectors.take("m", 9, "p")) == "b"
    assert await stage.vectors.take("m", 9, "nobody") is None


async def test_the_newest_vectors_come_with_their_numbers(stage: Stage) -> None:
    """Of rows that searches find, by arrival; a number finds its row, whatever it says."""
    await stage.append("o", "a", "b", ODD)
    await stage.append("o", "c", conversation_id=ODD)
    await stage.append("p", "d")
    for _ in range(2):
        await stage.taken()
    await stage.append("o", "end", "later")
    await stage.stores.history.prune("o", ["b"])
    newest = stage.vectors.newest

    found = await newest("o", "m", 9, 0)
    assert [row.packed.decode() for row in found] == ["m:c", f"m:{ODD}", "m:a"]
    assert [row.conversation_id for row in found] == [ODD, None, None]
    assert list(await newest("o", "m", 3, 0)) == list(found[:1])
    assert list(await newest("o", "m", 9, found[-1].number)) == list(found[:2])
    assert not await newest("o", "other", 9, 0)
    assert not await newest("nobody", "m", 9, 0)
    request = SearchRequest((), "later", 4, [found[-1].number])
    around = await stage.stores.history.search("o", None, request)
    assert "a" in [each["id"] for each in around]
