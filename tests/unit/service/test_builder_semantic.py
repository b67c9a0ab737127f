"""What a build recalls by meaning, from the request to the answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from formatters.model import Row
from service.app import open_builder
from service.audit.reports import make_report
from service.build.account import context_sizes
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.errors import StoreError
from service.wire.recall import RecallRequest
from service.wire.response import BuildSuccess
from tests.embedder import Concepts
from tests.support import NOW, MakeRequest, lacking, row

#: Shares no word with the question.
CHALET = "The chalet was cold that day"
QUESTION = "What about the cabin"


@pytest.fixture(autouse=True)
def _has_numpy() -> None:
    if find_spec("numpy") is None:
        lacking("the extra 'semantic' is not installed")


def history() -> list[Row]:
    """Return rows of which one is about a cabin, in other words."""
    return [
        row(n, "HUMAN", CHALET if n == 7 else f"The weather and soup of day {n}, as so often")
        for n in range(60)
    ]


@asynccontextmanager
async def opened(embedder: Concepts | None) -> AsyncIterator[ContextBuilder]:
    """Open a builder with the history."""
    async with open_builder(Settings(), embedder=embedder) as builder:
        await builder.history.append("o", history())
        yield builder


async def build(builder: ContextBuilder, make_request: MakeRequest, **more: Any) -> BuildSuccess:
    """Return what is sent to the question."""
    options = {"strategy": "relevance", "explain": True, "memory_tokens": 300, **more}
    content = (await builder.build(make_request(QUESTION, **options))).content
    assert content.status == "success", content
    return content


async def test_a_paraphrase_is_recalled(make_request: MakeRequest) -> None:
    """Without an embedder the row is as good as any other, and older than most."""
    async with opened(None) as builder:
        assert CHALET not in str((await build(builder, make_request)).messages)
    embedder = Concepts()
    async with opened(embedder) as builder:
        content = await build(builder, make_request)
        await build(builder, make_request)

    assert CHALET in str(content.messages)
    assert content.warnings == []
    # each row once, each question once
    assert sum(map(len, embedder.calls)) == 60
    assert embedder.questions == [QUESTION] * 2


async def test_a_query_without_a_match_finds_what_is_similar() -> None:
    """Without an embedder it finds nothing."""
    request = RecallRequest.model_validate({"owner_key": "o", "content": {"query": "cabin"}})
    for embedder in (Concepts(), None):
        async with opened(embedder) as builder:
            content = (await builder.recall(request)).content
        assert content.status == "success"
        assert (CHALET in content.text) is bool(content.messages) is (embedder is not None)


@pytest.mark.parametrize("fault", ["fails", "broken"])
async def test_a_failure_leaves_the_words(make_request: MakeRequest, fault: str) -> None:
    """The build goes on, and reports any error of an embedder."""
    embedder = Concepts()
    setattr(embedder, fault, True)
    async with opened(embedder) as builder:
        content = await build(builder, make_request)

    assert [warning.code for warning in content.warnings] == ["vectors_unavailable"]
    assert content.kept


@pytest.mark.parametrize("more", [{"strategy": "oldest_first"}, {"past": []}])
async def test_only_what_may_be_recalled_is_compared(
    make_request: MakeRequest, more: dict[str, Any]
) -> None:
    """Not for other strategies, and not rows of a request: the store has no vectors of them."""
    more = {"past": [row(0, "HUMAN", "rain")]} if "past" in more else more
    embedder = Concepts()
    async with opened(embedder) as builder:
        await build(builder, make_request, **more)

    assert embedder.questions == []


async def test_a_report_counts_rows_without_a_vector(make_request: MakeRequest) -> None:
    """Those that are refused, or not embedded yet; none where nothing is compared."""

    async def reported(embedder: Concepts | None) -> int | None:
        async with opened(embedder) as builder:
            request = make_request(QUESTION, strategy="relevance", memory_tokens=300)
            built = await builder.build_or_raise(request)
        report = make_report(built, at=NOW, content="redacted", settings={})
        assert context_sizes(built).without_vector == (report.read.without_vector or 0)
        return report.read.without_vector

    refusing, foreign = Concepts(), Concepts()
    refusing.refused = "chalet"
    foreign.refused = QUESTION

    counts = [await reported(embedder) for embedder in (None, Concepts(), refusing, foreign)]
    assert counts == [None, 0, 1, None]


async def test_the_names_of_speakers_are_not_embedded(make_request: MakeRequest) -> None:
    """Only of those who speak: a tool's result may begin with a word and a colon, too."""
    embedder = Concepts()
    async with opened(embedder) as builder:
        said = [row(100, "HUMAN", "About: once only")]
        said += [row(110 + n, "HUMAN", f"Ana: so it is, {n}") for n in range(3)]
        said += [row(120 + n, "TOOL", f"Cabin: {n}") for n in range(3)]
        await builder.history.append("o", said)
        await builder.build(make_request("About which Cabin did Ana ask?", strategy="relevance"))

    assert embedder.questions == ["About which Cabin did  ask?"]


async def test_names_that_cannot_be_read_stay(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is embedded as it is, with a warning."""
    embedder = Concepts()
    async with opened(embedder) as builder:
        recent, reads = builder.history.recent, iter([StoreError("away")])

        async def failing_once(*args: Any, **kwargs: Any) -> Any:
            for error in reads:
                raise error
            return await recent(*args, **kwargs)

        monkeypatch.setattr(builder.history, "recent", failing_once)
        content = await build(builder, make_request)

    assert embedder.questions == [QUESTION]
    assert [warning.code for warning in content.warnings] == ["vectors_unavailable"]
    assert CHALET in str(content.messages)
