"""An owner's builds: found only by the owner, compared, and made again in another way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from service.adapters.memory.hub import MemoryReports
from service.audit.compare import Comparison
from service.audit.report_store import BuildReports
from service.audit.reports import ContentMode
from service.audit.what_if import NotReplayableError
from service.build.account import Built
from service.builder import ContextBuilder
from service.config.endpoints import HttpSettings
from service.errors import (
    BudgetExceededError,
    ContextBuilderError,
    InvalidRequestError,
    NotFoundError,
)
from service.http.builds import (
    BuildPage,
    FormQuery,
    PageQuery,
    RecentOwners,
    ShownBuild,
    ShownForm,
    WhatIf,
    WhatIfBody,
    diff_builds,
    list_builds,
    list_owners,
    show_build,
    show_form,
    what_if,
)
from service.http.endpoint import Services, validated
from service.http.recent_builds import RecentBuilds
from service.wire.request import BuildRequest, Envelope, RequestMetadata
from tests.calling import calling, services
from tests.support import NOW, SEARCH, MakeBuilder, MakeRequest, row


class CountingReports(MemoryReports):
    """Counts how often it is asked."""

    asked = 0

    async def get(self, build_id: str) -> bytes | None:
        """Count, and return a manifest."""
        self.asked += 1
        return await super().get(build_id)

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Count, and return which there are."""
        self.asked += 1
        return await super().existing(build_ids)


class Worker:
    """Builds, reports and shows, as a worker does; others share its bus and its store."""

    def __init__(
        self, builder: ContextBuilder, store: MemoryReports, keeps: ContentMode = "full"
    ) -> None:
        self.builder = builder
        self.store = store
        self.recent = RecentBuilds(size=10, seconds=60)
        http = builder.settings.http.model_copy(update={"content": keeps})
        settings = builder.settings.model_copy(update={"http": http})
        self.reports = BuildReports(store, settings, lambda: NOW, self.recent.add)

    async def built(self, request: BuildRequest) -> Built:
        """Build, and store the report."""
        built = await self.builder.build_or_raise(request)
        await self.reports.store([built])
        return built

    def builds(self, shows: ContentMode = "full") -> "Builds":
        """Return what it shows."""
        return Builds(services(self.builder, shows, self.store, self.recent))


@dataclass
class Builds:
    """The calls of one who looks at builds."""

    services: Services

    async def newest(self, owner: str, limit: int, before: int | None = None) -> BuildPage:
        """Ask for a list."""
        query = PageQuery(limit=limit, before=before)
        return await list_builds(calling(self.services, owner, query=query))

    async def show(self, owner: str, name: str) -> ShownBuild:
        """Ask for a build."""
        return await show_build(calling(self.services, owner, id=name))

    async def in_form(self, owner: str, name: str, form: str) -> ShownForm:
        """Ask for a build in the form of a provider."""
        query = FormQuery.model_validate({"format": form})
        return await show_form(calling(self.services, owner, query=query, id=name))

    async def compare(self, owner: str, a: str, b: str) -> Comparison:
        """Ask for a comparison."""
        return await diff_builds(calling(self.services, owner, a=a, b=b))

    async def what_if(self, owner: str, name: str, options: dict[str, Any]) -> WhatIf:
        """Ask for a build with other options, as they came."""
        body = WhatIfBody.model_construct(**options)
        return await what_if(calling(self.services, owner, body=body, id=name))


@pytest.fixture
async def store() -> MemoryReports:
    """What the bus keeps."""
    return MemoryReports()


@pytest.fixture
async def worker(
    make_builder: MakeBuilder, make_request: MakeRequest, store: MemoryReports
) -> Worker:
    """A worker whose owner has a history, and the input recorded in it."""
    builder = make_builder(tools=[SEARCH])
    rows = [row(n, "ai" if n % 2 else "human", f"Secret number {n}.") for n in range(8)]
    await builder.history.append(
        "o", [*rows, row(100, "human", "Hello there", id=make_request().input_id)]
    )
    return Worker(builder, store)


@pytest.fixture
def other(worker: Worker, store: MemoryReports) -> Worker:
    """Another worker on the same bus and the same store."""
    return Worker(worker.builder, store)


async def test_a_build_is_shown_whole(worker: Worker, make_request: MakeRequest) -> None:
    """Its usage, and every decision though the request has no `explain`."""
    built = await worker.built(make_request())
    shown = await worker.builds().show("o", built.content.build_id)

    assert shown.source == "report"
    assert shown.usage == built.content.usage
    assert [each.message for each in shown.messages] == built.content.messages
    assert {name for each in shown.decisions for name in each.message_ids} >= {"m0", "m7"}
    assert [each.name for each in shown.tools] == ["web_search"]
    assert shown.strategy["name"] == "oldest_first"


async def test_words_are_not_shown(worker: Worker, make_request: MakeRequest) -> None:
    """Unless the settings say so; how long they were is."""
    built = await worker.built(make_request())
    shown = await worker.builds("redacted").show("o", built.content.build_id)

    assert {each.message for each in shown.messages} == {None}
    assert shown.messages[0].characters == len(built.content.messages[0]["content"])
    assert "Secret" not in str(shown)


async def test_a_refused_request_has_no_build(worker: Worker) -> None:
    """It didn't expire: the list that has its id has its error as well."""
    error = BudgetExceededError("too much")
    envelope = Envelope(
        id="r", owner_key="o", run_id=None, fingerprint="", metadata=RequestMetadata()
    )
    worker.recent.refuse(envelope, error)
    (listed,) = (await worker.builds().newest("o", 10)).builds

    with pytest.raises(NotFoundError, match="a refused request has no build: its entry in GET"):
        await worker.builds().show("o", listed.build_id)


async def test_nobody_else_finds_a_build(worker: Worker, make_request: MakeRequest) -> None:
    """The answer is the one for a build that there never was."""
    built = await worker.built(make_request())
    refusals = []
    for owner, name in (("p", built.content.build_id), ("o", f"bld_{'0' * 32}"), ("o", "../key")):
        with pytest.raises(NotFoundError) as refused:
            await worker.builds().show(owner, name)
        refusals.append(refused.value.detail)

    assert len(set(refusals)) == 1
    assert await worker.builds().newest("p", 10) == BuildPage(builds=[], next=None)


async def test_what_is_erased_on_the_bus_is_shown_no_more(
    worker: Worker, store: MemoryReports, make_request: MakeRequest
) -> None:
    """Though it is still in the memory of the worker, which gives it up then."""
    built = await worker.built(make_request())
    assert len((await worker.builds().newest("o", 10)).builds) == 1
    del store.kept[built.content.build_id]

    assert await worker.builds().newest("o", 10) == BuildPage(builds=[], next=None)
    assert not list(worker.recent.of("o"))


async def test_refused_requests_are_listed_with_the_builds(
    worker: Worker, make_request: MakeRequest
) -> None:
    """Though no report of them is on the bus, in the order of time, for their owner alone."""
    built = await worker.built(make_request())
    refused = make_request("Another question")
    worker.recent.refuse(refused.envelope, BudgetExceededError(needed=9, available=6))
    page = await worker.builds().newest("o", 10)

    assert [each.request_id for each in page.builds] == [refused.id, built.request.id]
    assert (page.builds[0].total, page.builds[0].available) == (9, 6)
    assert (await worker.builds().newest("p", 10)).builds == []


async def test_each_message_and_tool_has_its_tokens(
    worker: Worker, make_request: MakeRequest
) -> None:
    """Those of the account, where texts are shown; without texts they can't be counted."""
    built = await worker.built(make_request(layout="chat"))
    shown = await worker.builds().show("o", built.content.build_id)
    usage = shown.usage

    assert sum(each.tokens or 0 for each in shown.messages) == sum(usage.blocks.values())
    assert sum(each.tokens or 0 for each in shown.tools) == usage.tools
    hidden = await worker.builds("redacted").show("o", built.content.build_id)
    assert {each.tokens for each in hidden.messages} == {None}
    assert {each.tokens for each in hidden.tools} == {None}


async def test_another_way_reads_what_its_settings_read(
    worker: Worker, make_request: MakeRequest
) -> None:
    """Rows that the build left unread are candidates of the other one."""
    rows = [row(n, "ai" if n % 2 else "human", f"Secret number {n}.") for n in range(9, 99)]
    await worker.builder.history.append("o", rows)
    built = await worker.built(make_request(memory_limit=2))
    name = built.content.build_id
    before = (await worker.builds().show("o", name)).summary.outcomes
    found = await worker.builds().what_if("o", name, {"strategy": "relevance"})
    outcomes = found.build.summary.outcomes

    assert before["not_read"] > 50
    assert "not_read" not in outcomes
    assert sum(outcomes.values()) == sum(before.values())
    (change,) = [each for each in found.comparison.settings if each.name == "strategy"]
    assert (change.a, change.b) == ("oldest_first", "relevance")


async def test_builds_come_in_pages(worker: Worker, make_request: MakeRequest) -> None:
    """Newest first, each once."""
    names = [(await worker.built(make_request(f"Question {n}"))).content.build_id for n in range(5)]
    seen, before = [], None
    for _ in range(3):
        page = await worker.builds().newest("o", 2, before=before)
        before = page.next
        seen += [summary.build_id for summary in page.builds]

    assert seen == names[::-1]
    assert before is None


async def test_a_page_costs_the_bus_one_question(worker: Worker, make_request: MakeRequest) -> None:
    """However many builds it has: the worker's own requests need the connections too."""
    for number in range(5):
        await worker.built(make_request(f"Question {number}"))
    store = CountingReports()
    store.kept = worker.store.kept
    worker.store = store
    page = await worker.builds().newest("o", 10)

    assert len(page.builds) == 5
    assert store.asked == 1


async def test_any_worker_shows_any_build(
    worker: Worker, other: Worker, make_request: MakeRequest
) -> None:
    """Just as the worker that built it, whatever has changed since."""
    built = await other.built(make_request(memory_limit=4, blocks={"MOOD": "calm"}))
    await worker.builder.sources.profiles.put(
        "o", {"prompt_overrides": {"friends_profile": "Likes tea."}}
    )
    shown = await worker.builds().show("o", built.content.build_id)

    assert shown == await other.builds().show("o", built.content.build_id)
    assert [each.message for each in shown.messages] == built.content.messages
    assert shown.summary.outcomes["kept"] == built.content.kept
    assert shown.summary.outcomes["dropped"] == built.content.dropped
    assert shown.unavailable is None


async def test_texts_that_were_not_kept_are_not_shown(
    worker: Worker, store: MemoryReports, make_request: MakeRequest
) -> None:
    """The reason is given instead; comparing still reports differences."""
    silent = Worker(worker.builder, store, keeps="redacted")
    a, b = await silent.built(make_request()), await silent.built(make_request(memory_limit=2))
    shown = await worker.builds().show("o", a.content.build_id)
    form = await worker.builds().in_form("o", a.content.build_id, "openai")
    found = await worker.builds().compare("o", a.content.build_id, b.content.build_id)

    assert {each.message for each in shown.messages} == {None}
    assert "http.content" in (shown.unavailable or "")
    assert (form.body, form.unavailable) == (None, shown.unavailable)
    assert [(each.block, each.added, each.lines) for each in found.messages] == [
        ("SHARED_MEMORY", None, None)
    ]


async def test_a_build_is_shown_in_the_form_of_a_provider(
    worker: Worker, make_request: MakeRequest
) -> None:
    """As it would have been sent to it, for any form of the request."""
    request = make_request(format="anthropic")
    built = await worker.built(request)
    name = built.content.build_id

    anthropic = await worker.builds().in_form("o", name, "anthropic")
    openai = await worker.builds().in_form("o", name, "openai")

    assert anthropic.body == built.content.provider_request
    assert openai.body == {"messages": built.content.messages, "tools": built.content.tools}


@pytest.mark.parametrize("shows", ["full", "redacted"])
async def test_two_builds_are_compared(
    worker: Worker, other: Worker, make_request: MakeRequest, shows: ContentMode
) -> None:
    """Built by any worker; the lines that differ are texts."""
    first, second = (
        await worker.built(make_request()),
        await other.built(make_request(memory_limit=2)),
    )
    builds = worker.builds(shows)
    a, b = [each.content.build_id for each in (first, second)]
    found = await builds.compare("o", a, b)

    assert (found.a, found.b) == (first.content.build_id, second.content.build_id)
    assert not found.identical
    assert "m0" in [change.message_id for change in found.history]
    (change,) = [each for each in found.messages if each.block == "SHARED_MEMORY"]
    assert (change.removed or 0) > (change.added or 0) > 0
    assert (change.lines is not None) == (shows == "full")
    assert ("Secret" in str(found)) == (shows == "full")
    assert (await builds.compare("o", a, a)).identical


@pytest.mark.parametrize("mine", [True, False])
async def test_a_build_in_another_way(
    worker: Worker, other: Worker, make_request: MakeRequest, *, mine: bool
) -> None:
    """With other options, at the same moment, on the history of now; nothing is stored."""
    built = await (worker if mine else other).built(make_request())
    await worker.builder.history.append("o", [row(200, "human", "Since then.")])
    before = await worker.builder.history.stats("o")
    found = await worker.builds().what_if(
        "o", built.content.build_id, {"memory_limit": 2, "strategy": "middle_out"}
    )

    assert found.build.strategy["name"] == "middle_out"
    assert found.build.summary.outcomes["kept"] == 2
    assert found.comparison.a == built.content.build_id
    changed = {change.message_id for change in found.comparison.history}
    assert changed == {*(f"m{n}" for n in range(7)), "m200"}
    assert "Since then" in str(found.build.messages)
    assert await worker.builder.history.stats("o") == before
    assert worker.recent.last == int(mine)
    with pytest.raises(NotFoundError):
        await worker.builds().show("o", found.build.summary.build_id)


async def test_the_same_options_come_to_the_same(worker: Worker, make_request: MakeRequest) -> None:
    """With all that the request brought along."""
    request = make_request(blocks={"MOOD": "calm"}, past=[row(1, "human", "Brought along.")])
    built = await worker.built(request)
    found = await worker.builds().what_if(
        "o", built.content.build_id, {"max_tokens": 8000, "reserve_tokens": 2000}
    )

    assert found.comparison.identical
    assert "Brought along" in str(found.build.messages)


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"strategy": "nonesuch"}, "invalid_request"),
        ({"max_tokens": 10, "reserve_tokens": 0}, "budget_exceeded"),
        ({"reserve_tokens": 90_000}, "invalid_request"),
        ({"max_tokens": 0}, "invalid_request"),
    ],
)
async def test_what_cannot_be_built_is_said(
    worker: Worker, make_request: MakeRequest, wishes: dict[str, object], code: str
) -> None:
    """As on the bus."""
    built = await worker.built(make_request())
    with pytest.raises(ContextBuilderError) as refused:
        await worker.builds().what_if("o", built.content.build_id, wishes)
    assert refused.value.code == code


async def test_what_a_request_brought_is_needed_for_another_way(
    worker: Worker, store: MemoryReports, make_request: MakeRequest
) -> None:
    """A worker that keeps no texts has it no more."""
    silent = Worker(worker.builder, store, keeps="redacted")
    built = await silent.built(make_request(blocks={"MOOD": "calm"}))
    with pytest.raises(NotReplayableError, match="blocks"):
        await worker.builds().what_if("o", built.content.build_id, {"memory_limit": 2})


async def test_owners_of_recent_builds_are_listed_on_ones_own_machine(
    worker: Worker, make_request: MakeRequest
) -> None:
    """The newest first, by their keys alone; one whose builds are erased is listed no more."""
    for owner in ("o", "p", "q"):
        request = make_request().model_copy(update={"owner_key": owner})
        gone = await worker.built(request)
    del worker.store.kept[gone.content.build_id]
    found = await list_owners(calling(worker.builds().services, ""))

    assert [each.owner_key for each in found.owners] == ["p", "o"]
    assert found.listed


@pytest.mark.parametrize(
    "http",
    [
        {"token": "a-token-for-these-tests"},
        {"host": "0.0.0.0", "token": "a-token-for-these-tests"},  # noqa: S104 - what is refused
        {"host": "0.0.0.0"},  # noqa: S104 - likewise
        {"allowed_origins": ["https://app.example.com"]},
    ],
)
async def test_owners_are_not_listed_where_others_may_ask(
    worker: Worker, make_request: MakeRequest, http: dict[str, Any]
) -> None:
    """With a token, on another address, or for pages of others."""
    await worker.built(make_request())
    served = worker.builds().services
    settings = served.builder.settings
    changed = settings.model_copy(update={"http": HttpSettings(**http)})
    served = replace(served, builder=replace(served.builder, settings=changed))

    assert await list_owners(calling(served, "")) == RecentOwners(owners=(), listed=False)


def test_an_unknown_key_is_named_with_the_one_that_is_meant() -> None:
    """As on the bus."""
    with pytest.raises(InvalidRequestError, match=r"/strategi: is unknown; .* strategy\?"):
        validated(WhatIfBody, {"strategi": "middle_out"})
