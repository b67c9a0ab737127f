"""An owner's builds: found by nobody else, compared, and made again in another way."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from service.adapters.memory.hub import MemoryReports
from service.audit.replay import NotReplayableError
from service.audit.store import Filing
from service.build.report import Built
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.errors import ContextBuilderError
from service.http.builds import Builds
from service.http.error_responses import NotFoundError
from service.http.recent_builds import RecentBuilds
from service.http.views import Content
from service.wire.request import BuildRequest
from tests.support import NOW, SEARCH, MakeBuilder, MakeRequest, row


class CountingReports(MemoryReports):
    """Counts how often it is asked."""

    asked = 0

    async def get(self, build_id: str) -> bytes | None:
        """Count, and return a manifest."""
        self.asked += 1
        return await super().get(build_id)

    async def present(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Count, and return which there are."""
        self.asked += 1
        return await super().present(build_ids)


class Worker:
    """Builds, files and shows, as a worker does; others share its bus and its store."""

    def __init__(self, builder: ContextBuilder, manifests: MemoryReports) -> None:
        self.builder = builder
        self.manifests = manifests
        self.recent = RecentBuilds(size=10, seconds=60, now=lambda: NOW)
        self.filing = Filing(manifests, builder.settings, self.recent.add)

    async def built(self, request: BuildRequest) -> Built:
        """Build and file."""
        built = await self.builder.built(request)
        await self.filing.file(built)
        return built

    def builds(self, shows: Content = "full") -> Builds:
        """Return what it shows."""
        return Builds(self.recent, self.filing, self.builder, shows)


@pytest.fixture
async def manifests() -> MemoryReports:
    """What the bus keeps."""
    return MemoryReports()


@pytest.fixture
async def worker(make_builder: MakeBuilder, manifests: MemoryReports) -> Worker:
    """A worker whose owner has a history, and the input recorded in it."""
    builder = make_builder(tools=[SEARCH])
    rows = [row(n, "ai" if n % 2 else "human", f"Secret number {n}.") for n in range(8)]
    await builder.history.append("o", [*rows, row(100, "human", "Hello there", id="in_q")])
    return Worker(builder, manifests)


@pytest.fixture
def other(worker: Worker, manifests: MemoryReports) -> Worker:
    """Another worker on the same bus and the same store."""
    return Worker(worker.builder, manifests)


async def test_a_build_is_shown_whole(worker: Worker, make_request: MakeRequest) -> None:
    """Its usage, and every decision though nobody asked for an explanation."""
    built = await worker.built(make_request())
    known = await worker.builds().find("o", built.content.build_id)
    shown = await worker.builds().show(known)

    assert shown.source == "memory"
    assert shown.usage == built.content.usage
    assert [each.message for each in shown.messages] == built.content.messages
    assert {name for each in shown.decisions for name in each.message_ids} >= {"m0", "m7"}
    assert (shown.tools, shown.strategy["name"]) == (["web_search"], "oldest_first")


async def test_words_are_not_shown(worker: Worker, make_request: MakeRequest) -> None:
    """Unless the settings say so; how long they were is."""
    built = await worker.built(make_request())
    builds = worker.builds("redacted")
    shown = await builds.show(await builds.find("o", built.content.build_id))

    assert {each.message for each in shown.messages} == {None}
    assert shown.messages[0].characters == len(built.content.messages[0]["content"])
    assert "Secret" not in str(shown)


async def test_nobody_else_finds_a_build(worker: Worker, make_request: MakeRequest) -> None:
    """The answer is the one for a build that there never was."""
    built = await worker.built(make_request())
    refusals = []
    for owner, name in (("p", built.content.build_id), ("o", f"bld_{'0' * 32}"), ("o", "../key")):
        with pytest.raises(NotFoundError) as refused:
            await worker.builds().find(owner, name)
        refusals.append(refused.value.detail)

    assert len(set(refusals)) == 1
    assert await worker.builds().newest("p", 10) == ([], None)


async def test_what_is_erased_on_the_bus_is_shown_no_more(
    worker: Worker, manifests: MemoryReports, make_request: MakeRequest
) -> None:
    """Though it is still in the memory of the worker, which gives it up then."""
    built = await worker.built(make_request())
    assert len((await worker.builds().newest("o", 10))[0]) == 1
    manifests.kept.drop(built.content.build_id)

    assert await worker.builds().newest("o", 10) == ([], None)
    assert worker.recent.find(built.content.build_id) is None


async def test_builds_come_in_pages(worker: Worker, make_request: MakeRequest) -> None:
    """Newest first, each once."""
    names = [(await worker.built(make_request(f"Question {n}"))).content.build_id for n in range(5)]
    seen, before = [], None
    for _ in range(3):
        page, before = await worker.builds().newest("o", 2, before=before)
        seen += [held.built.content.build_id for held in page]

    assert seen == names[::-1]
    assert before is None


async def test_a_page_costs_the_bus_one_question(worker: Worker, make_request: MakeRequest) -> None:
    """However many builds it has: the worker's own requests need the connections too."""
    for number in range(5):
        await worker.built(make_request(f"Question {number}"))
    manifests = CountingReports()
    manifests.kept = worker.manifests.kept
    builds = Builds(worker.recent, Filing(manifests, Settings()), worker.builder, "full")

    page, _ = await builds.newest("o", 10)

    assert len(page) == 5
    assert manifests.asked == 1


async def test_what_another_worker_built_is_shown_by_its_manifest(
    worker: Worker, other: Worker, make_request: MakeRequest
) -> None:
    """With the words only where the same comes of it again."""
    built = await other.built(make_request(memory_limit=4))
    name = built.content.build_id
    short = await worker.builds("redacted").show(await worker.builds().find("o", name))
    whole = await worker.builds().show(await worker.builds().find("o", name))

    assert (short.source, short.messages[0].characters) == ("manifest", None)
    assert short.usage == whole.usage == built.content.usage
    assert [each.message for each in whole.messages] == built.content.messages
    told = {(*each.message_ids, each.decision, each.reason) for each in short.decisions}
    assert ("m1", "dropped", "memory_limit") in told
    assert ("m7", "kept", "fits") in told
    assert (short.summary.kept, short.summary.dropped) == (
        built.content.kept,
        built.content.dropped,
    )


async def test_words_that_changed_since_are_not_shown_for_those_that_were_sent(
    worker: Worker, other: Worker, make_request: MakeRequest
) -> None:
    """It is said why instead."""
    built = await other.built(make_request())
    await worker.builder.sources.profiles.put(
        "o", {"prompt_overrides": {"friends_profile": "Likes tea."}}
    )
    known = await worker.builds().find("o", built.content.build_id)
    shown = await worker.builds().show(known)

    assert {each.message for each in shown.messages} == {None}
    assert shown.unavailable is not None
    assert "changed since" in shown.unavailable
    with pytest.raises(NotReplayableError):
        await worker.builds().compare(known, known)


async def test_what_cannot_be_built_any_more_is_told(
    worker: Worker, other: Worker, manifests: MemoryReports, make_request: MakeRequest
) -> None:
    """As where a strategy is gone that another worker has."""
    built = await other.built(make_request())
    poorer = Worker(replace(worker.builder, strategies={}), manifests)
    shown = await poorer.builds().show(await poorer.builds().find("o", built.content.build_id))
    assert "can't be built any more" in (shown.unavailable or "")


async def test_what_came_along_with_a_request_is_gone_with_its_worker(
    worker: Worker, other: Worker, make_request: MakeRequest
) -> None:
    """Another one says so."""
    built = await other.built(make_request(blocks={"MOOD": "calm"}))
    shown = await worker.builds().show(await worker.builds().find("o", built.content.build_id))
    assert "blocks" in (shown.unavailable or "")


@pytest.mark.parametrize("shows", ["full", "redacted"])
async def test_two_builds_are_compared(
    worker: Worker, other: Worker, make_request: MakeRequest, shows: Content
) -> None:
    """Whoever built them; the lines that differ are words."""
    first, second = (
        await worker.built(make_request()),
        await other.built(make_request(memory_limit=2)),
    )
    builds = worker.builds(shows)
    a, b = [await builds.find("o", each.content.build_id) for each in (first, second)]
    found = await builds.compare(a, b)

    assert (found.a, found.b) == (first.content.build_id, second.content.build_id)
    assert not found.identical
    assert "m0" in [change.message_id for change in found.history]
    (change,) = [each for each in found.messages if each.block == "SHARED_MEMORY"]
    assert change.removed > change.added > 0
    assert (change.lines is not None) == (shows == "full")
    assert ("Secret" in str(found)) == (shows == "full")
    assert (await builds.compare(a, a)).identical


@pytest.mark.parametrize("mine", [True, False])
async def test_a_build_in_another_way(
    worker: Worker, other: Worker, make_request: MakeRequest, *, mine: bool
) -> None:
    """With other options, on the same rows, at the same moment; nothing is stored."""
    built = await (worker if mine else other).built(make_request())
    await worker.builder.history.append("o", [row(200, "human", "Since then.")])
    before = await worker.builder.history.stats("o")
    known = await worker.builds().find("o", built.content.build_id)
    found = await worker.builds().what_if(known, {"memory_limit": 2, "strategy": "middle_out"})

    assert found.build.strategy["name"] == "middle_out"
    assert found.build.summary.kept == 2
    assert found.comparison.a == built.content.build_id
    assert {change.message_id for change in found.comparison.history} == {f"m{n}" for n in range(6)}
    assert "Since then" not in str(found)
    assert await worker.builder.history.stats("o") == before
    assert worker.recent.last == int(mine)
    with pytest.raises(NotFoundError):
        await worker.builds().find("o", found.build.summary.build_id)


async def test_the_same_options_come_to_the_same(worker: Worker, make_request: MakeRequest) -> None:
    """With all that the request brought along."""
    request = make_request(blocks={"MOOD": "calm"}, past=[row(1, "human", "Brought along.")])
    built = await worker.built(request)
    known = await worker.builds().find("o", built.content.build_id)
    found = await worker.builds().what_if(known, {"max_tokens": 8000, "reserve_tokens": 2000})

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
    known = await worker.builds().find("o", built.content.build_id)
    with pytest.raises(ContextBuilderError) as refused:
        await worker.builds().what_if(known, wishes)
    assert refused.value.code == code


async def test_without_manifests_nothing_is_shown(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Who keeps none wants none kept."""
    settings = Settings.model_validate({"manifests": {"ttl_seconds": 0}})
    worker = Worker(make_builder(settings=settings), MemoryReports())
    await worker.built(make_request())
    assert worker.recent.last == 0
