"""How full a history is, and what pruning it by hand hides."""

from collections.abc import Sequence

import pytest

from service.adapters.memory.hub import MemoryReports
from service.audit.report_store import BuildReports
from service.audit.reports import ContentMode
from service.builder import ContextBuilder
from service.config.settings import BudgetSettings, MemorySettings, Settings
from service.errors import InvalidRequestError, OverloadedError
from service.http.manual_pruning import (
    HistoryStatus,
    IdsBody,
    Marked,
    ModelQuery,
    Preview,
    PruningTarget,
    history_status,
    preview_pruning,
    prune,
    undo_pruning,
)
from service.wire.request import BuildRequest
from tests.calling import calling, services
from tests.support import NOW, MakeBuilder, MakeRequest, row

#: Five tokens.
FIVE = "These are five words."


def said(number: int, role: str = "human", text: str = FIVE) -> dict[str, object]:
    """Return a row."""
    return dict(row(number, role, text))


class Pruning:
    """The calls of one who prunes."""

    def __init__(self, builder: ContextBuilder, content: ContentMode) -> None:
        self.store = MemoryReports()
        self.services = services(builder, content, self.store)

    async def built(self, request: BuildRequest) -> None:
        """Build, and list the build."""
        services = self.services
        built = await services.builder.build_or_raise(request)
        settings, recent = services.builder.settings, services.recent
        await BuildReports(self.store, settings, lambda: NOW, recent.add).store([built])

    async def status(self, owner: str, model: str | None) -> HistoryStatus:
        """Ask how full a history is."""
        return await history_status(calling(self.services, owner, query=ModelQuery(model=model)))

    async def preview(self, owner: str, target: PruningTarget) -> Preview:
        """Ask what would be hidden."""
        return await preview_pruning(calling(self.services, owner, body=target))

    async def commit(self, owner: str, ids: Sequence[str]) -> Marked:
        """Hide rows."""
        return await prune(calling(self.services, owner, body=IdsBody(ids=[*ids])))

    async def undo(self, owner: str, ids: Sequence[str]) -> Marked:
        """Restore rows."""
        return await undo_pruning(calling(self.services, owner, body=IdsBody(ids=[*ids])))


@pytest.fixture
async def builder(make_builder: MakeBuilder) -> ContextBuilder:
    """A builder whose owner has said forty things."""
    builder = make_builder()
    rows = [said(n, "ai" if n % 2 else "human") for n in range(40)]
    await builder.history.append("o", rows)
    return builder


async def test_preview_and_status_count_alike(builder: ContextBuilder) -> None:
    """What is freed by a commit is what the preview promised."""
    pruning = Pruning(builder, "redacted")
    before = await pruning.status("o", None)
    preview = await pruning.preview("o", PruningTarget(target_tokens=50))
    marked = await pruning.commit("o", preview.ids)
    after = await pruning.status("o", None)

    assert (preview.tokens_before, preview.tokens_after) == (before.tokens, after.tokens)
    assert (preview.messages_before, preview.messages_after) == (before.messages, after.messages)
    assert after.tokens <= 50 < before.tokens
    assert (marked.changed, after.pruned) == (len(preview.ids), len(preview.ids))
    assert not preview.over_target


async def test_long_rows_count_as_they_are_printed(make_builder: MakeBuilder) -> None:
    """Cut, as the store counts them; and what is never printed costs nothing."""
    builder = make_builder()
    await builder.history.append("o", [said(1, text=FIVE * 200), said(2, "tool", FIVE)])
    pruning = Pruning(builder, "redacted")

    tokens = (await pruning.preview("o", PruningTarget())).tokens_before
    assert tokens == (await pruning.status("o", None)).tokens
    assert 0 < tokens < 200


async def test_undo_gives_everything_back(builder: ContextBuilder) -> None:
    """In its old place; and a second time there is nothing to do."""
    pruning = Pruning(builder, "redacted")
    before = await builder.history.get_history("o", 100)
    ids = (await pruning.preview("o", PruningTarget(target_tokens=50))).ids
    await pruning.commit("o", ids)

    assert (await pruning.undo("o", ids)).changed == len(ids)
    assert (await pruning.undo("o", ids)).changed == 0
    assert await builder.history.get_history("o", 100) == before


async def test_what_comes_after_the_preview_stays(builder: ContextBuilder) -> None:
    """Only the rows that were shown are hidden."""
    pruning = Pruning(builder, "redacted")
    ids = (await pruning.preview("o", PruningTarget(target_tokens=50))).ids
    await builder.history.append("o", [said(99)])
    await pruning.commit("o", ids)

    newest, *_ = await builder.history.get_history("o", 1)
    assert newest["id"] == "m99"


async def test_a_preview_changes_nothing(builder: ContextBuilder) -> None:
    """However often it is requested."""
    pruning = Pruning(builder, "redacted")
    assert await pruning.preview("o", PruningTarget()) == await pruning.preview(
        "o", PruningTarget()
    )
    assert (await builder.history.stats("o")).pruned == 0


async def test_a_long_history_is_no_fault(make_builder: MakeBuilder) -> None:
    """Builds choose from it; a preview hides what is above four fifths of a context."""
    budget = BudgetSettings(max_tokens=120, reserve_tokens=20)
    builder = make_builder(settings=Settings(budget=budget))
    pruning = Pruning(builder, "redacted")
    assert (await pruning.status("o", None)).state == "idle"
    await builder.history.append("o", [said(n) for n in range(16)])
    full = await pruning.status("o", None)
    await builder.history.append("o", [said(16)])
    over = await pruning.status("o", None)

    assert (full.tokens, full.target, full.state) == (80, 80, "active")
    assert (full.utilization_percent, full.available) == (80.0, 100)
    assert (over.utilization_percent, over.state) == (85.0, "active")
    preview = await pruning.preview("o", PruningTarget())
    assert (preview.target_tokens, preview.ids) == (80, ["m0"])


async def test_the_status_has_what_the_newest_build_kept(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Of all rows, those that it didn't read included; refused requests are no builds."""
    pruning = Pruning(builder, "redacted")
    before = await pruning.status("o", None)
    await pruning.built(make_request(memory_limit=4))
    pruning.services.recent.refuse(make_request().envelope, OverloadedError())
    after = await pruning.status("o", None)

    assert (before.kept, before.candidates) == (None, None)
    assert (after.kept, after.candidates) == (4, 40)
    assert (await pruning.status("p", None)).kept is None


async def test_a_preview_counts_the_recalls_that_it_would_have_hidden(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Of this worker's recent builds, each of which counts a row that it recalled once."""
    secret = said(100, "human", "The code of the blue door is 4471.")
    await builder.history.append("o", [secret, *(said(n) for n in range(101, 140))])
    pruning = Pruning(builder, "redacted")
    none = await pruning.preview("o", PruningTarget(target_tokens=0))
    question = "What is the code of the blue door?"
    for number in range(2):
        options = {"strategy": "relevance", "memory_tokens": 120}
        request = make_request(question, **options)
        await pruning.built(request.model_copy(update={"id": f"r{number}"}))
    found = await pruning.preview("o", PruningTarget(target_tokens=0))

    assert (none.builds, none.recalled, none.recalled_hidden) == (0, 0, 0)
    assert "m100" in found.ids
    assert found.builds == 2
    assert 2 <= found.recalled_hidden <= found.recalled


async def test_the_window_is_the_same_for_status_and_preview(builder: ContextBuilder) -> None:
    """That of the model that is named; one button must not prune to another model's limit."""
    pruning = Pruning(builder, "redacted")
    status = await pruning.status("o", "gpt-5")
    preview = await pruning.preview("o", PruningTarget(model="gpt-5"))

    assert status.limit > 100_000
    assert (status.target, preview.ids) == (preview.target_tokens, [])


async def test_calls_go_with_their_results(make_builder: MakeBuilder) -> None:
    """And the newest question stays, whatever it costs."""
    builder = make_builder()
    call = {"tool_calls": [{"id": "c1", "name": "web_search", "arguments": {}}]}
    rows = [
        said(1),
        {**said(2, "ai", "Looking."), "metadata": call},
        {**said(3, "tool", "Found."), "metadata": {"tool_call_id": "c1"}},
        said(4, "human", "The question itself."),
    ]
    await builder.history.append("o", rows)
    preview = await Pruning(builder, "full").preview("o", PruningTarget(target_tokens=0))

    assert preview.ids == ["m1", "m2", "m3"]
    assert preview.over_target
    assert [each.content for each in preview.rows] == [each["content"] for each in rows[:3]]


async def test_words_are_not_shown(builder: ContextBuilder) -> None:
    """Unless the settings say so."""
    preview = await Pruning(builder, "redacted").preview("o", PruningTarget(target_tokens=0))
    assert {each.content for each in preview.rows} == {None}
    assert {each.tokens for each in preview.rows} == {5}


async def test_what_was_not_looked_at_is_reported(make_builder: MakeBuilder) -> None:
    """A history of more rows than are read."""
    builder = make_builder(settings=Settings(memory=MemorySettings(max_rows=3)))
    await builder.history.append("o", [said(n) for n in range(5)])
    preview = await Pruning(builder, "redacted").preview("o", PruningTarget())
    assert (preview.messages_before, preview.not_read) == (3, 2)


async def test_one_conversation_can_be_pruned(make_builder: MakeBuilder) -> None:
    """Others are not looked at."""
    builder = make_builder()
    for name in ("trip", "work"):
        rows = [{**said(n), "id": f"{name}{n}"} for n in range(3)]
        await builder.history.append("o", rows, conversation_id=name)
    aim = PruningTarget(target_tokens=0, conversation_id="trip")
    preview = await Pruning(builder, "redacted").preview("o", aim)

    assert preview.ids == ["trip0", "trip1"]
    assert {each.conversation_id for each in preview.rows} == {"trip"}


async def test_a_reserve_that_leaves_nothing_is_said(make_builder: MakeBuilder) -> None:
    """The model's window may be smaller than what the settings keep free."""
    budget = BudgetSettings(reserve_tokens=400_000)
    with pytest.raises(InvalidRequestError):
        await Pruning(make_builder(settings=Settings(budget=budget)), "full").status("o", "gpt-4o")


async def test_the_status_reports_when_something_was_said_last(builder: ContextBuilder) -> None:
    """By the newest row's own time; of an owner without rows there is none, nor of hidden rows."""
    pruning = Pruning(builder, "redacted")
    assert (await pruning.status("o", None)).last_message_at == "2025-12-09T00:39:00Z"
    await pruning.commit("o", ["m39"])
    assert (await pruning.status("o", None)).last_message_at == "2025-12-09T00:38:00Z"
    assert (await pruning.status("nobody", None)).last_message_at is None


async def test_the_status_reports_how_history_gives_way_by_itself(
    make_builder: MakeBuilder,
) -> None:
    """By the name of the strategy that is configured, also of several."""
    for spec, name in (
        ("none", "none"),
        ({"name": "window_size", "max_messages": 4}, "window_size"),
        (["tool_result_clearing", "oldest_first"], "composite"),
    ):
        settings = Settings(budget=BudgetSettings(strategy=spec))
        status = await Pruning(make_builder(settings=settings), "redacted").status("o", None)
        assert status.strategy == name
