"""What takes long is done in a thread, so that the event loop stays free; what doesn't is not."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from service.config.settings import MemorySettings, Settings
from service.wire.request import BuildRequest
from tests.support import MakeBuilder, MakeRequest, row

FILLING = "We talked about the weather, and about soup, and about nothing much at all"


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of functions that builders call in threads, as they are called."""
    names: list[str] = []
    real = asyncio.to_thread

    async def record(function: Callable[..., Any], *args: object) -> object:
        names.append(getattr(function, "__qualname__", ""))
        return await real(function, *args)

    monkeypatch.setattr(asyncio, "to_thread", record)
    return names


@pytest.mark.parametrize("layout", ["tagged", "chat"])
@pytest.mark.parametrize("strategy", ["oldest_first", "relevance", "importance"])
@pytest.mark.parametrize("limit", [None, 400])
async def test_only_the_first_build_of_a_history_needs_a_thread(
    make_builder: MakeBuilder,
    make_request: MakeRequest,
    in_threads: list[str],
    layout: str,
    strategy: str,
    limit: int | None,
) -> None:
    """Messages that were formatted before are little work."""
    builder = make_builder(settings=Settings(memory=MemorySettings(limit=limit)))
    rows = [row(n, "ai" if n % 2 else "human", f"{FILLING} {n}") for n in range(300)]
    await builder.history.append("o", rows)
    options = {"layout": layout, "strategy": strategy, "max_tokens": 60_000}

    threads = []
    for question in ("What about soup?", "And the weather?"):
        in_threads.clear()
        await builder.build_or_raise(make_request(question, **options))
        threads.append([name for name in in_threads if name.endswith("fit")])

    assert [len(each) for each in threads] == [1, 0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("tagged", "oldest_first"), ("tagged", "relevance")),
        (("tagged", "relevance"), ("chat", "oldest_first")),
    ],
)
async def test_another_form_needs_a_thread_again(
    make_builder: MakeBuilder,
    make_request: MakeRequest,
    in_threads: list[str],
    first: tuple[str, str],
    second: tuple[str, str],
) -> None:
    """What was formatted for one layout or strategy may be much work for another."""
    builder = make_builder(settings=Settings(memory=MemorySettings(limit=None)))
    rows = [row(n, "ai" if n % 2 else "human", f"{FILLING} {n}") for n in range(300)]
    await builder.history.append("o", rows)

    for layout, strategy in (first, second):
        in_threads.clear()
        options = {"layout": layout, "strategy": strategy, "max_tokens": 60_000}
        await builder.build_or_raise(make_request("Hi", **options))

        assert [name for name in in_threads if name.endswith("fit")]


@pytest.mark.parametrize(("chars", "in_thread"), [(1_000, False), (60_000, True)])
async def test_long_runs_are_read_in_a_thread(
    make_builder: MakeBuilder, in_threads: list[str], chars: int, in_thread: bool
) -> None:
    """The messages of a short run are read at once."""
    run = [{"role": "human", "content": "Hi"}, {"role": "ai", "content": "a" * chars}]
    content = {"history": run, "metadata": {"context": {"max_tokens": 60_000}}}
    request = {"id": "q", "owner_key": "o", "content": content}

    await make_builder().build_or_raise(BuildRequest.model_validate(request))

    assert ("read_rows" in in_threads) is in_thread
