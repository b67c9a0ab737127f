"""What was said, by owner and by build."""

from collections.abc import Sequence

import pytest

from service.adapters.memory.hub import MemoryReports
from service.audit.report_store import BuildReports
from service.audit.reports import ContentMode
from service.builder import ContextBuilder
from service.config.settings import MemorySettings, Settings
from service.errors import NotFoundError
from service.http.messages import MessagePage, MessagesQuery, list_messages
from service.wire.request import BuildRequest
from tests.calling import calling, services
from tests.support import NOW, MakeBuilder, MakeRequest, row


class Pages:
    """A worker that builds and shows messages."""

    def __init__(self, builder: ContextBuilder) -> None:
        self.builder = builder
        self.store = MemoryReports()

    async def built(self, request: BuildRequest, keeps: ContentMode = "full") -> str:
        """Build, and return the id of the stored report."""
        http = self.builder.settings.http.model_copy(update={"content": keeps})
        settings = self.builder.settings.model_copy(update={"http": http})
        built = await self.builder.build_or_raise(request)
        await BuildReports(self.store, settings, lambda: NOW).store([built])
        return built.content.build_id

    async def page(
        self,
        owner: str = "o",
        *,
        build: str | None = None,
        conversation_id: str | None = None,
        content: ContentMode = "full",
    ) -> MessagePage:
        """Ask for messages."""
        query = MessagesQuery(build=build, conversation_id=conversation_id)
        served = services(self.builder, content, self.store)
        return await list_messages(calling(served, owner, query=query))


def ids(page: MessagePage) -> Sequence[str]:
    """Return the ids of messages, newest first."""
    return [each.id for each in page.messages]


@pytest.fixture
async def pages(make_builder: MakeBuilder) -> Pages:
    """A worker whose owner has said eight things, two of them in a conversation."""
    builder = make_builder(settings=Settings(memory=MemorySettings(max_rows=6)))
    rows = [row(n, "ai" if n % 2 else "human", f"Secret number {n}.") for n in range(8)]
    await builder.history.append("o", rows[:6])
    await builder.history.append("o", rows[6:], conversation_id="talk")
    return Pages(builder)


async def test_messages_are_those_of_the_owner(pages: Pages) -> None:
    """The newest first, with their texts, up to the limit of a build."""
    page = await pages.page()

    assert ids(page) == [f"m{n}" for n in (7, 6, 5, 4, 3, 2)]
    assert (page.older, page.messages[0].text, page.messages[0].role) == (
        2,
        "Secret number 7.",
        "ai",
    )
    assert page.messages[0].tokens > 1
    assert ids(await pages.page("p")) == []
    assert ids(await pages.page(conversation_id="talk")) == ["m7", "m6"]


async def test_no_words_are_shown_where_content_is_redacted(
    pages: Pages, make_request: MakeRequest
) -> None:
    """Neither of the history nor of a build; ids, roles and counts are."""
    name = await pages.built(make_request(past=[row(1, "human", "Secret that I brought.")]))
    for page in (
        await pages.page(content="redacted"),
        await pages.page(build=name, content="redacted"),
    ):
        assert page.messages
        assert "Secret" not in repr(page)


async def test_a_build_has_all_that_it_decided_on(pages: Pages, make_request: MakeRequest) -> None:
    """What was hidden or grew old since then, too."""
    name = await pages.built(make_request())
    await pages.builder.history.prune("o", ["m4"])
    await pages.builder.history.append("o", [row(n, "human", "New.") for n in range(20, 26)])

    assert {f"m{n}" for n in range(2, 8)} <= set(ids(await pages.page(build=name)))


async def test_a_build_has_what_its_request_brought(
    pages: Pages, make_request: MakeRequest
) -> None:
    """Instead of the stored history; a report without texts doesn't have it."""
    past = [row(n, "human", f"Brought {n}.") for n in (1, 2)]
    full = await pages.built(make_request("One", past=past))
    redacted = await pages.built(make_request("Other", past=past), "redacted")

    shown = await pages.page(build=full)
    assert [each.text for each in shown.messages] == ["Brought 2.", "Brought 1."]
    assert ids(await pages.page(build=redacted)) == []


async def test_nobody_else_reads_the_messages_of_a_build(
    pages: Pages, make_request: MakeRequest
) -> None:
    """Its id is of no use to another owner."""
    name = await pages.built(make_request())
    with pytest.raises(NotFoundError):
        await pages.page("p", build=name)
