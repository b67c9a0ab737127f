"""Builds that read stored summaries: which are used, and what can't be read."""

from dataclasses import replace

import pytest

from formatters.model import Summary
from service.adapters.memory.store import MemoryHistory, MemorySummaries
from service.builder import ContextBuilder
from service.errors import StoreError
from service.ports.stores import Expected, Scope, rows_fingerprint
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import NOW, MakeBuilder, MakeRequest, row

ROWS = [row(n, "HUMAN", f"words of message {n} " * 6) for n in range(20)]


class BrokenSummaries(MemorySummaries):
    """Summaries that can't be read."""

    async def read(self, owner_key: str, conversation_id: str | None = None) -> list[Summary]:
        """Fail."""
        raise StoreError("down")


@pytest.fixture
async def builder(make_builder: MakeBuilder) -> ContextBuilder:
    """Return a builder over twenty rows, of which a summary covers ten."""
    plain = make_builder()
    history = plain.history
    assert isinstance(history, MemoryHistory)
    await history.append("o", [*ROWS, row(99, "HUMAN", "Hello there", id="in_q", run_id="run_q")])
    summaries = MemorySummaries(history, lambda: NOW)
    ids = tuple(f"m{n}" for n in range(10))
    summary = Summary(
        id="s",
        owner_key="o",
        text="They said words, ten times.",
        message_ids=ids,
        tokens=8,
        created=NOW,
        summarizer="test",
        fingerprint=rows_fingerprint(ROWS[:10]),
    )
    assert await summaries.put(summary, Expected(summaries=frozenset(), last_id="m9", rows=10))
    return replace(plain, sources=replace(plain.sources, summaries=summaries))


def asking(make_request: MakeRequest, **context: object) -> BuildRequest:
    """Ask for a context with room for some of the rows."""
    given = {"strategy": "summarization", "memory_tokens": 500, "memory_limit": None}
    return make_request(**{**given, "explain": True, **context})


async def content_of(builder: ContextBuilder, request: BuildRequest) -> BuildSuccess:
    """Build a context that has to come about."""
    content = (await builder.build(request)).content
    assert content.status == "success"
    return content


def text_of(content: BuildSuccess) -> str:
    """Return all that is sent."""
    return "\n".join(str(message["content"]) for message in content.messages)


async def test_a_summary_replaces_rows_that_were_not_read(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Also for those beyond the limit of rows, which are decided on as summarised."""
    unread = await content_of(builder, asking(make_request))
    limited = await content_of(
        builder, asking(make_request, memory_limit=12, memory_tokens=4_000, layout="tagged")
    )

    assert "They said words, ten times." in text_of(unread)
    assert any(each.decision == "not_read" for each in unread.decisions)
    assert "They said words, ten times." in text_of(limited)
    fates = {id_: each.reason for each in limited.decisions for id_ in each.message_ids}
    assert fates["m7"] == "in_summary"
    assert fates["m9"] == "in_summary"
    assert fates["m10"] == "fits"


@pytest.mark.parametrize("limit", [12, None])
async def test_a_row_that_came_late_to_a_turn_is_not_in_its_summary(
    builder: ContextBuilder, make_request: MakeRequest, limit: int | None
) -> None:
    """Each row has the decision that is true of it."""
    late = {**row(50, "AI", "words that came late " * 9), "run_id": ROWS[5]["run_id"]}
    await builder.history.append("o", [late])
    tokens = 4_000 if limit else 700
    content = await content_of(
        builder, asking(make_request, memory_limit=limit, memory_tokens=tokens, layout="tagged")
    )

    fates = {id_: each.decision for each in content.decisions for id_ in each.message_ids}
    assert "They said words, ten times." in text_of(content)
    assert (fates["m5"], fates["m50"]) == ("summarized", "dropped")


async def test_other_strategies_and_other_histories_have_none(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Neither `oldest_first` nor a history that is sent along shows a summary."""
    for context in ({"strategy": "oldest_first"}, {"past": ROWS}, {"strategy": "none"}):
        content = await content_of(builder, asking(make_request, **context))
        assert "They said words, ten times." not in text_of(content)


async def test_a_summary_of_rows_that_are_gone_is_not_used(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """If all rows were read and one that it covers is missing, it covers deleted text."""
    history = MemoryHistory(lambda: builder.tokenizers.counter("o200k_base"), lambda: NOW)
    await history.append("o", ROWS[1:])
    without = replace(builder, sources=replace(builder.sources, history=history))
    request = asking(make_request, memory_tokens=300, max_tokens=100_000)
    read_all = replace(
        without,
        settings=without.settings.model_copy(
            update={"memory": without.settings.memory.model_copy(update={"message_chars": 400})}
        ),
    )
    content = await content_of(read_all, request)
    assert "They said words, ten times." not in text_of(content)
    assert not any(each.decision == "not_read" for each in content.decisions)


async def test_summaries_that_cannot_be_read_are_done_without(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """The build goes on as `oldest_first` and says so."""
    history = builder.history
    assert isinstance(history, MemoryHistory)
    broken = BrokenSummaries(history, lambda: NOW)
    without = replace(builder, sources=replace(builder.sources, summaries=broken))
    content = await content_of(without, asking(make_request))
    assert [warning.code for warning in content.warnings] == ["summary_unavailable"]
    assert "They said words, ten times." not in text_of(content)


async def test_the_warning_is_of_one_scope(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Other owners, other strategies and histories that are sent along have none."""
    builder.sources.failed_scopes[Scope("o")] = 0, 0

    async def codes(request: BuildRequest) -> list[str]:
        return [each.code for each in (await content_of(builder, request)).warnings]

    assert await codes(asking(make_request)) == ["summary_unavailable"]
    assert await codes(asking(make_request, strategy="oldest_first")) == []
    assert await codes(asking(make_request, past=[])) == []
    assert await codes(asking(make_request, owner_key="p")) == []
