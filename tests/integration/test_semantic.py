"""The model of the extra ``semantic``, where it is installed."""

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec

import pytest

from formatters.model import Row
from service.adapters.openers import EMBEDDERS
from service.app import open_builder
from service.build import similarity
from service.cli import checks
from service.cli.checks import check_vectors
from service.config.content import RecallSettings
from service.config.settings import Settings
from service.connect import open_stores
from service.errors import NoVectorError
from service.ports.services import Embedder
from service.wire.request import BuildRequest
from tests.stores import Sql
from tests.support import lacking, row

PUPPY = "A puppy joined the family last week, and sleeps in the kitchen"


@pytest.fixture(autouse=True)
def _installed() -> None:
    if find_spec("onnxruntime") is None:
        lacking("the extra 'semantic' is not installed")


def asked() -> BuildRequest:
    """Return a question with none of the words that answer it."""
    context = {"strategy": "relevance", "memory_tokens": 300}
    content = {"current_input": "Which pets do they have?", "context": context}
    return BuildRequest.model_validate({"owner_key": "o", "content": content})


def said() -> list[Row]:
    """Return rows of which an old one answers it."""
    return [row(n, "HUMAN", PUPPY if n == 3 else f"Rain again, report {n}") for n in range(30)]


@pytest.fixture
async def minilm() -> AsyncIterator[Embedder]:
    """Load the model."""
    async with EMBEDDERS["minilm"](RecallSettings().embedder) as embedder:
        yield embedder


async def test_a_paraphrase_is_nearer_than_other_words(minilm: Embedder) -> None:
    """A text has the same vector alone and among others, and twice."""
    texts = ["He has got a dog", "A puppy joined the family", "The train was late"]
    dog, puppy, train = await minilm.embed(texts)

    def product(one: object, other: object) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))  # type: ignore[call-overload]

    assert len(dog) == 384
    assert product(dog, puppy) > product(dog, train)
    assert [puppy] == await minilm.embed(texts[1:2])
    assert len((await minilm.embed(["long " * 10_000]))[0]) == 384


@pytest.mark.parametrize("text", ["Qu'est-ce que c'est, déjà ?", "", "昨日 the same day", "42"])
async def test_a_question_in_latin_letters_is_compared(minilm: Embedder, text: str) -> None:
    """Or in no letters at all."""
    assert len(await minilm.embed([text], question=True)) == 1


@pytest.mark.parametrize("text", ["昨日は何を食べましたか", "어제 뭐 먹었어", "Где мы были?"])
async def test_a_question_in_other_letters_has_no_vector(minilm: Embedder, text: str) -> None:
    """Rows have one all the same, for questions in English."""
    with pytest.raises(NoVectorError):
        await minilm.embed([text], question=True)
    assert len(await minilm.embed([text])) == 1


async def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every program that opens a builder; a row without the words of the question is found."""
    monkeypatch.setenv("CTXB_RECALL__SEMANTIC", "true")
    async with open_builder() as builder:
        await builder.history.append("o", said())
        assert PUPPY in str((await builder.build(asked())).content.messages)

    monkeypatch.setenv("CTXB_RECALL__SEMANTIC", "false")
    assert not Settings().recall.semantic


async def test_a_database_is_embedded_in_the_background(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows from before too; builds go on meanwhile, and doctor counts what is left."""
    settings = Settings.model_validate({"store": {"url": sql.url}, "recall": {"semantic": True}})
    monkeypatch.setattr(similarity, "IDLE_SECONDS", 0.01)
    async with open_stores(Settings(store=settings.store)) as stores:
        await stores.history.append("o", said())
    (waiting,) = [each async for each in check_vectors(settings)]

    async with open_builder(settings) as builder, asyncio.timeout(60):
        while sql.ask("SELECT count(*) FROM vectors") != [(30,)]:
            await builder.build(asked())
            await asyncio.sleep(0.05)
        while sql.ask("SELECT 1 FROM vector_queue WHERE due IS NOT NULL"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert PUPPY in str((await builder.build(asked())).content.messages)
    (done,) = [each async for each in check_vectors(settings)]
    monkeypatch.setattr(checks, "MANY_WAITING", -1)
    (many,) = [each async for each in check_vectors(settings)]

    assert waiting.found == "all-MiniLM-L6-v2-int8, 30 rows without one"
    assert done.found == "all-MiniLM-L6-v2-int8, 0 rows without one"
    assert [each.state for each in (waiting, done, many)] == ["ok", "ok", "warn"]


async def test_doctor_needs_no_database() -> None:
    """Of a store in memory there is nothing to count, nor if vectors are off."""
    found = [
        [each.found async for each in check_vectors(Settings(recall=RecallSettings(semantic=on)))]
        for on in (False, True)
    ]

    assert found == [["off"], ["all-MiniLM-L6-v2-int8"]]
