"""What stays of a prompt while a conversation grows, from the request to the answer."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from formatters.model import Row
from service.builder import ContextBuilder
from service.config.settings import MemorySettings, Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import FixedHistory, MakeBuilder, MakeRequest, row

RECALL = Settings(preset="recall")
LAYOUTS = ["tagged", "chat"]


def talk(length: int) -> list[Row]:
    """Return rows of alternate speakers without runs, of ten words or more."""
    return [
        {
            **row(
                n, "AI" if n % 2 else "HUMAN", f"{n} " + "words about soup and boats " * (1 + n % 3)
            ),
            "run_id": None,
            "timestamp": f"2025-01-{1 + n // 60:02}T12:{n % 60:02}:00Z",
        }
        for n in range(length)
    ]


def recent(content: BuildSuccess, layout: str) -> str:
    """Return what is sent of the newest turns."""
    texts = [str(message["content"]) for message in content.messages]
    if layout == "tagged":
        return next(text for text in texts if text.startswith("[SHARED_MEMORY"))
    end = next(n for n, text in enumerate(texts) if text.startswith(("[RECALLED", "[THIS_MOMENT]")))
    return "\n".join(texts[1:end])


async def asked(builder: ContextBuilder, request: Any) -> BuildSuccess:
    """Return the context of a request."""
    content = (await builder.build(request)).content
    assert content.status == "success", content
    return content


def moves(texts: Sequence[str]) -> int:
    """Count the texts that the one before is not the beginning of."""
    return sum(not other.startswith(one) for one, other in pairwise(texts))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", [{}, {"strategy": "stable_window"}])
@pytest.mark.parametrize("sent_along", [False, True])
async def test_history_grows_at_its_end(
    make_builder: MakeBuilder,
    make_request: MakeRequest,
    layout: str,
    way: dict[str, Any],
    sent_along: bool,
) -> None:
    """Of a store as of rows that are sent along, and under either strategy."""
    rows = talk(60)
    builder = make_builder(settings=RECALL)
    await builder.history.append("o", rows[:29])
    texts = []
    for length in range(30, 60):
        await builder.history.append("o", rows[length - 1 : length])
        past = {"past": rows[:length]} if sent_along else {}
        request = make_request("Soup?", layout=layout, memory_tokens=500, **way, **past)
        texts.append(recent(await asked(builder, request), layout))

    assert 2 <= moves(texts) <= 14
    assert all("59 words" not in text for text in texts[:-1])
    assert all(f"{length - 1} words" in text for length, text in enumerate(texts, 30))


@pytest.mark.parametrize("sent_along", [False, True])
async def test_results_of_tools_count_where_they_are_shown(
    make_builder: MakeBuilder, make_request: MakeRequest, sent_along: bool
) -> None:
    """A window of native messages moves by a chunk of them, however little of it is talk."""
    rows = work(60)
    builder = make_builder(settings=RECALL)
    await builder.history.append("o", rows[:76])
    used = []
    for length in range(80, len(rows), 4):
        await builder.history.append("o", rows[length - 4 : length])
        options = {"layout": "chat", "strategy": "stable_window", "memory_tokens": 2_000}
        past = {"past": rows[:length]} if sent_along else {}
        content = await asked(builder, make_request("Soup?", **options, **past))
        used.append(content.usage.blocks["HISTORY"])

    assert 5 <= sum(other < one for one, other in pairwise(used)) <= 9
    # a quarter goes at a time, and a turn of at most 120 tokens where it ends within one
    assert min(used) >= 0.75 * 2_000 - 2 * 120


def work(length: int) -> list[Row]:
    """Return n turns: a few words, a call, its result, which is long, and a word."""
    rows: list[Row] = []
    for turn in range(length):
        call = {"id": f"c{turn}", "name": "look", "arguments": {"page": turn}}
        said: Sequence[tuple[str, str, dict[str, Any]]] = (
            ("HUMAN", "Next", {}),
            ("AI", "", {"tool_calls": [call]}),
            ("TOOL", "a page about soup " * (10 + turn % 10), {"tool_call_id": f"c{turn}"}),
            ("AI", "Done", {}),
        )
        rows += [
            {
                "id": f"w{turn}-{n}",
                "role": role,
                "content": text,
                "metadata": metadata,
                "timestamp": f"2025-01-01T{10 + turn // 60}:{turn % 60:02}:{n:02}Z",
            }
            for n, (role, text, metadata) in enumerate(said)
        ]
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_without_a_limit_of_its_own_history_stays_whatever_is_asked(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str
) -> None:
    """Inputs differ in length, so that more or less is left for history."""
    builder = make_builder(settings=RECALL)
    await builder.history.append("o", talk(200))
    inputs = ["Soup?", "And what of the boats? " * 20, "Well " * 90, "Hm"]
    requests = [make_request(text, layout=layout, max_tokens=5_000) for text in inputs]

    assert len({recent(await asked(builder, request), layout) for request in requests}) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("limits", [{"memory_limit": 30}, {"max_rows": 40}])
async def test_windows_of_rows_move_in_chunks_too(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str, limits: dict[str, int]
) -> None:
    """Count limits hold, and what is left of them stays."""
    rows = talk(120)
    most = limits.get("max_rows")
    memory = MemorySettings(limit=None, header="still", **({"max_rows": most} if most else {}))
    builder = make_builder(settings=Settings(memory=memory))
    options = {"strategy": "stable_window", "memory_limit": limits.get("memory_limit")}
    texts = []
    for length in range(80, 120):
        await builder.history.append("o", rows[:length])
        content = await asked(builder, make_request("Soup?", layout=layout, **options))
        texts.append(recent(content, layout))
        assert content.kept <= max(limits.values())

    assert moves(texts) <= 8


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_cacheable_prefix_reaches_to_the_end_of_what_stays(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str
) -> None:
    """Under a window that stays; under one that moves it ends before history."""
    builder = make_builder(settings=RECALL)
    await builder.history.append("o", talk(60))
    options = {"layout": layout, "memory_tokens": 500}
    still = await asked(builder, make_request("Soup?", **options))
    moving = await asked(builder, make_request("Soup?", strategy="oldest_first", **options))
    counted = await asked(builder, make_request("Soup?", memory_header="counted", **options))
    tag = {"tagged": "SHARED_MEMORY", "chat": "HISTORY"}[layout]
    blocks = still.usage.blocks
    before = sum(tokens for name, tokens in blocks.items() if name in _LEADING[layout])

    assert "RECALLED" in blocks
    assert still.usage.cacheable_prefix == before + blocks[tag]
    assert moving.usage.cacheable_prefix == before
    assert counted.usage.cacheable_prefix == (
        before if layout == "tagged" else before + blocks[tag]
    )


_LEADING = {
    "tagged": ("CORE_IDENTITY", "CAPABILITIES"),
    "chat": ("CORE_IDENTITY", "CAPABILITIES", "FRIENDS_INFO"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_turn_that_is_larger_than_the_window_is_no_part_of_the_prefix(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str
) -> None:
    """It is shown all the same, and the next build begins with another one."""
    memory = MemorySettings(message_chars=2_000)
    builder = make_builder(settings=Settings(preset="recall", memory=memory))
    long = {**talk(89)[88], "content": "88 words about soup" + " and boats" * 150}
    await builder.history.append("o", [*talk(88), long])
    content = await asked(builder, make_request("Soup?", layout=layout, memory_tokens=400))
    before = sum(n for name, n in content.usage.blocks.items() if name in _LEADING[layout])

    assert "88 words" in recent(content, layout)
    assert content.usage.cacheable_prefix == before


async def test_marks_stand_behind_messages_that_stay_as_they_are(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """A block that grows is none of these; native history is sent in messages that stay."""
    builder = make_builder(settings=RECALL)
    await builder.history.append("o", talk(60))
    marked = {}
    for layout in LAYOUTS:
        options = {"layout": layout, "format": "anthropic", "memory_tokens": 500}
        content = await asked(builder, make_request("Soup?", **options))
        assert content.provider_request is not None
        blocks = [b for m in content.provider_request["messages"] for b in m["content"]]
        (marked[layout],) = [b["text"] for b in blocks if "cache_control" in b]

    assert marked["tagged"].startswith("[CAPABILITIES]")
    assert marked["chat"].startswith("59 words")


async def test_an_empty_history_is_no_part_of_the_prefix(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The next build has rows in place of its placeholder."""
    content = await asked(make_builder(settings=RECALL), make_request())

    before = content.usage.blocks["CORE_IDENTITY"] + content.usage.blocks["CAPABILITIES"]
    assert content.usage.cacheable_prefix == before


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_store_that_reveals_nothing_has_a_window_of_what_was_read(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str
) -> None:
    """Its rows are counted by an estimate, and begin where they were read from."""
    rows = talk(60)
    builder = make_builder(settings=RECALL, sources={"history": FixedHistory(rows)})
    sent = make_request("Soup?", layout=layout, memory_tokens=500, past=rows)
    stored = make_request("Soup?", layout=layout, memory_tokens=500)

    texts = [recent(await asked(builder, request), layout) for request in (sent, stored)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strategy", ["oldest_first", "stable_window", "relevance"])
@pytest.mark.parametrize("ahead", [True, False])
async def test_a_stored_run_takes_nothing_from_history(
    make_builder: MakeBuilder, layout: str, strategy: str, ahead: bool
) -> None:
    """Its messages are the newest rows, whether the request has them or not; they are shown apart.

    An agent publishes each message of its run under the id that the request has.
    """
    builder = make_builder()
    await builder.history.append("o", talk(400))
    run: list[Row] = []
    shown = set()
    for step in range(6):
        options = {"layout": layout, "memory_tokens": 500, "strategy": strategy, "max_tokens": 9000}
        history = [{"id": "in", "content": "Soup?"}, *(run if ahead else [])]
        content = {"history": history, "metadata": {"context": {**options, "memory_limit": None}}}
        request = BuildRequest.model_validate(
            {"id": f"q{step}", "run_id": "run_q", "owner_key": "o", "content": content}
        )
        shown.add(recent(await asked(builder, request), layout))
        said = f"I look at file {step}, since the last one did not have the answer. " * 8
        run.append({"id": f"n{step}", "run_id": "run_q", "role": "AI", "content": said})
        await builder.history.append("o", run[-1:])

    (text,) = shown
    assert "399 words" in text
