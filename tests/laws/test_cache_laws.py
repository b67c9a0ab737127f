"""Laws of what is kept between builds: no build shows that another one preceded it."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.adapters.memory.store import MemoryHistory
from service.budget.estimates import SimpleTokenCounter
from service.budget.strategies.importance import Importance
from service.budget.strategies.oldest_first import OldestFirst
from service.build.row_cache import RowCache
from service.builder import ContextBuilder
from service.conversation.context_config import ContextConfig
from service.conversation.fit import fit_rows
from service.conversation.manager import ContextManager
from service.conversation.pruning import prune_context, summarize_context
from service.errors import BudgetExceededError, MessageError
from service.wire.request import BuildRequest
from tests.laws.building import law_builder
from tests.laws.examples import CHOICES, PASTS, choices
from tests.laws.test_in_process_laws import conversations as in_process
from tests.laws.test_manager_laws import STEP as TALK_STEPS
from tests.laws.test_manager_laws import STRATEGIES as MANAGER_STRATEGIES
from tests.laws.test_manager_laws import Step as Talk
from tests.support import NOW


def new_history() -> MemoryHistory:
    """Return an empty store."""
    return MemoryHistory(lambda: law_builder().tokenizers.counter("o200k_base"), lambda: NOW)


# --- builds from a store -----------------------------------------------------------------------

Step = Callable[[MemoryHistory], Any]

IDS = st.lists(st.integers(0, 12).map(lambda number: f"m{number}"), max_size=4)


def append(rows: list[dict[str, Any]], count: int, *, other: bool) -> Step:
    """Return a step that stores rows; some of them are stored already, or else in other words."""
    said = [{**row, "content": "in other words"} for row in rows] if other else rows
    return lambda history: history.append("o", said[:count])


CHANGES: st.SearchStrategy[Step] = st.one_of(
    IDS.map(lambda ids: lambda history: history.prune("o", ids)),
    IDS.map(lambda ids: lambda history: history.restore("o", ids)),
    st.just(lambda history: history.erase("o")),
)

OPTIONS = st.fixed_dictionaries(
    {
        "layout": st.sampled_from(["tagged", "tagged", "chat"]),
        "strategy": st.sampled_from(CHOICES).flatmap(choices),
        "memory_limit": st.sampled_from([None, None, 3, 8]),
        "memory_tokens": st.sampled_from([None, 64, 120, 300]),
        "memory_timezone": st.sampled_from(["utc", "client"]),
        "model": st.sampled_from([None, "gpt-5", "claude-sonnet-4-5", "qwen3"]),
    }
)


def request(options: dict[str, Any], run_id: str) -> BuildRequest:
    """Return a request with an input and options."""
    metadata = {"client_timezone_offset": -480, "context": {"explain": True, **options}}
    content = {"history": [{"id": "q", "content": "What did I say?"}], "metadata": metadata}
    given = {"id": "q", "run_id": run_id, "owner_key": "o", "content": content}
    return BuildRequest.model_validate(given)


def answer(builder: ContextBuilder, asked: BuildRequest) -> dict[str, Any]:
    """Return the answer to a request, without what is another one each time."""
    return asyncio.run(builder.build(asked)).content.model_dump()


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw rows, in most histories with times, of which some are the same."""
    rows: list[dict[str, Any]] = draw(PASTS)
    minutes = draw(st.sampled_from([None, 1, 1, 2]))
    if minutes is None:
        return rows
    times = (f"2025-12-09T15:{place // minutes:02}:00Z" for place in range(len(rows)))
    return [{**row, "timestamp": time} for row, time in zip(rows, times, strict=True)]


@st.composite
def stays(draw: st.DrawFn) -> list[tuple[Step, list[BuildRequest]]]:
    """Draw how a history changes, and what is requested after each change."""
    rows = draw(histories())
    adds = st.builds(
        lambda count, other: append(rows, count, other=other),
        st.integers(0, len(rows)),
        st.sampled_from([False, False, True]),
    )
    requests = st.builds(request, OPTIONS, st.sampled_from(["run_q", "r1"]))
    steps = st.tuples(st.one_of(adds, adds, CHANGES), st.lists(requests, max_size=3))
    return draw(st.lists(steps, min_size=1, max_size=4))


@settings(max_examples=max(settings().max_examples, 25))
@given(stay=stays(), size=st.sampled_from([0, 10_000, 32_000_000]))
def test_a_build_is_as_the_first_one(
    stay: list[tuple[Step, list[BuildRequest]]], size: int
) -> None:
    """Whatever was built before it, of which rows, in which form, and however much is kept."""
    history = new_history()
    sources = replace(law_builder().sources, history=history, rows=RowCache(size))
    warm = replace(law_builder(), sources=sources)
    for step, requests in stay:
        asyncio.run(step(history))
        for asked in requests:
            fresh = replace(warm, sources=replace(sources, rows=RowCache()))
            expected = answer(fresh, asked)

            assert answer(warm, asked) == expected
            assert answer(warm, asked) == expected


@given(rows=histories(), options=OPTIONS)
def test_callers_may_change_what_they_get(
    rows: Sequence[dict[str, Any]], options: dict[str, Any]
) -> None:
    """Neither a row of a store nor a message of an answer is one that the next build has."""
    history = new_history()
    builder = replace(
        law_builder(), sources=replace(law_builder().sources, history=history, rows=RowCache())
    )
    asyncio.run(history.append("o", rows))
    asked = request(options, "run_q")
    first = asyncio.run(builder.build(asked)).content
    before = copy.deepcopy(first.model_dump())
    for given_away in (first.messages, list(asyncio.run(history.recent("o")).rows)):
        for each in given_away:
            spoil(each)

    assert answer(builder, asked) == before


def spoil(value: Any) -> None:
    """Change a value at any depth."""
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            spoil(part)
    if isinstance(value, dict):
        value |= dict.fromkeys([*value, "odd"], "spoilt")
    else:
        value.append("spoilt")


# --- conversations in process --------------------------------------------------------------------

CONFIGS = st.builds(
    ContextConfig,
    max_tokens=st.sampled_from([40, 90, 200, 10_000]),
    reserve_tokens=st.just(0),
    datetime_in=st.sampled_from(["message", "system"]),
    correlate_results=st.booleans(),
)


def manage(config: ContextConfig, strategy: Any) -> ContextManager:
    """Return an empty manager."""
    return ContextManager(
        config,
        system_prompt="Sys",
        strategy=strategy,
        token_counter=SimpleTokenCounter(),
        clock=lambda: NOW,
    )


def odd_row(row: dict[str, Any]) -> Talk:
    """Return a step that adds a row of history, which the caller changes afterwards."""

    def add(context: ContextManager, number: int) -> None:
        given = copy.deepcopy(row) | {"id": str(number), "role": row["role"] or "user"}
        context.add_message_dict(given)
        spoil(given)

    return add


def reorder(context: ContextManager, number: int) -> None:
    """Turn the conversation around from some message on."""
    rows = context.rows()
    context.replace_rows([*rows[: number // 2], *rows[number // 2 :][::-1]])


TALK: st.SearchStrategy[Talk] = st.one_of(
    TALK_STEPS,
    TALK_STEPS,
    PASTS.flatmap(lambda rows: st.sampled_from(rows or [{"role": "user", "content": "x"}])).map(
        odd_row
    ),
    st.just(reorder),
    st.just(lambda context, _: context.replace_rows(context.rows()[1:])),
    st.just(lambda context, _: context.clear_messages()),
    st.just(lambda context, _: context.set_current_conversation("default")),
    st.just(lambda context, _: context.add_message_dict({"role": "user", "content": "x"}, "other")),
)


@settings(max_examples=max(settings().max_examples, 40))
@given(config=CONFIGS, strategy=MANAGER_STRATEGIES, talk=st.lists(TALK, max_size=12))
def test_a_manager_builds_as_a_new_one(
    config: ContextConfig, strategy: Any, talk: list[Talk]
) -> None:
    """Whatever was said before, built before, and changed by callers since."""
    warm = manage(config, strategy)
    for number, step in enumerate(talk):
        step(warm, number)
        fresh = manage(config, strategy)
        fresh.replace_rows(copy.deepcopy(warm.rows()))
        built, expected = warm.build(), fresh.build()

        assert built == expected
        spoil(built.messages)
        assert warm.get_token_usage() == fresh.get_token_usage()
    assert warm.build() == warm.build()


# --- a caller's own messages ---------------------------------------------------------------------

CONVERSATIONS = in_process()


def insert_text(rows: list[Any], place: int) -> None:
    """Insert a message, after which all others have another index."""
    rows.insert(place, {"role": "user", "content": f"text {place}"})


def change_deep(rows: list[Any], place: int) -> None:
    """Change what is innermost in a message, such as an argument of a call."""
    value: Any = rows[place]
    while isinstance(value, dict | list) and value:
        keys: list[Any] = [*value] if isinstance(value, dict) else [*range(len(value))]
        inner = next((key for key in keys if isinstance(value[key], dict | list)), None)
        if inner is None or not value[inner]:
            likely: Any = ("text", "content", "q", "id")
            value[next((key for key in likely if key in keys), keys[-1])] = f"error {place}"
            return
        value = value[inner]


CHANGES_OF_ROWS: st.SearchStrategy[Any] = st.sampled_from(
    [insert_text, change_deep, change_deep, lambda rows, place: rows.pop(place)]
)

FUNCTIONS: st.SearchStrategy[Any] = st.sampled_from(
    [
        lambda rows: prune_context(rows, 60),
        lambda rows: prune_context(rows, 400),
        lambda rows: summarize_context(rows, 3),
        lambda rows: fit_rows(rows, Importance(), 150, SimpleTokenCounter().count),
        lambda rows: fit_rows(rows, OldestFirst(), 10_000, SimpleTokenCounter().count),
    ]
)


def outcome(function: Callable[[list[Any]], object], rows: list[Any]) -> object:
    """Return what a function returns, or why it refuses."""
    try:
        return function(rows)
    except (BudgetExceededError, MessageError) as error:
        return str(error)


@settings(max_examples=max(settings().max_examples, 40))
@given(
    rows=st.one_of(CONVERSATIONS, CONVERSATIONS, histories()),
    steps=st.lists(st.tuples(CHANGES_OF_ROWS, st.integers(0, 20), FUNCTIONS), max_size=6),
    first=FUNCTIONS,
)
def test_a_callers_changes_show(rows: list[Any], steps: list[Any], first: Any) -> None:
    """A function gives what it would give for messages that it never saw."""
    rows = copy.deepcopy(rows)
    outcome(first, rows)
    for change, place, function in steps:
        if rows:
            change(rows, place % len(rows))

        assert outcome(function, rows) == outcome(function, copy.deepcopy(rows))
