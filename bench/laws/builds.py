"""The builds of a case: every strategy, both layouts, all forms, budgets from nothing to all."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import cycle, islice
from typing import Any, Final

from bench.laws.cases import Case
from bench.laws.checks import Ask, Broken, check, check_refusal
from bench.recounts import cost_of_tools, floor, parts_of
from service.adapters.memory.store import MemoryHistory, MemoryProfiles
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.budget.strategies import STRATEGIES
from service.build.gather import Sources
from service.builder import ContextBuilder
from service.connect import now
from service.wire.request import BuildRequest
from service.wire.response import BuildFailure, BuildSuccess, ErrorBody

#: The smallest limit of history in a request.
LEAST_MEMORY: Final = 64

LAYOUTS: Final = ("tagged", "chat")
FORMS: Final = ("openai", "openai_responses", "anthropic", "gemini")

#: Each strategy as it is, and under parameters that make it choose otherwise; and two lists.
CHOICES: Final[tuple[Any, ...]] = (
    *STRATEGIES,
    {"name": "sliding_window", "window_size": 3},
    {"name": "window_size", "max_messages": 2},
    {"name": "smart_window", "max_messages": 5, "preserve_initial": 1, "prioritize_tools": True},
    {"name": "tool_result_clearing", "keep_recent_n": 0},
    {"name": "importance", "recency_weight": 0.0},
    {"name": "relevance", "recent_share": 0.5},
    {"name": "count_summary", "max_items": 2},
    ["tool_result_clearing", "importance"],
    ["window_size", "count_summary", "middle_out"],
)

#: The share of wishes that is built, as one of n, by the characters of a case.
STRIDES: Final = ((30_000, 6), (5_000, 2), (0, 1))


@dataclass(slots=True)
class Found:
    """What the builds of a case came to."""

    builds: int = 0
    refused: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    #: The first of each law that was broken, with its cause.
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, case: Case, ask: Ask, broken: Iterator[Broken]) -> None:
        """Add what a build broke."""
        for each in broken:
            self.broken[each.law] += 1
            self.examples.setdefault(each.law, f"{case.name} {ask}: {each.detail}")

    def add_all(self, other: "Found") -> None:
        """Add what other builds came to."""
        self.builds += other.builds
        self.refused += other.refused
        self.broken += other.broken
        self.examples = {**other.examples, **self.examples}


def build_all(case: Case, *, stride: int = 1) -> Found:
    """Build a case under every ``stride``-th wish, fewer where it is large, and check each."""
    found = Found()
    stride *= next(each for size, each in STRIDES if case.size >= size)
    forms = cycle(FORMS)
    for turn, layout in enumerate(LAYOUTS):
        whole = _build(case, Ask(layout=layout, strategy="none"))
        if isinstance(whole, BuildFailure):
            found.builds += 1
            found.refused += 1
            ask = Ask(layout=layout, strategy="none")
            found.add(case, ask, check_refusal(whole, ask, 0))
            continue
        needed = _protected(case, layout)
        for ask in islice(_asks(layout, whole, needed), turn % stride, None, stride):
            asked = replace(ask, form=next(forms))
            _check_one(case, asked, whole if ask.strategy == "none" else needed, found)
    return found


def _check_one(case: Case, ask: Ask, needs: BuildSuccess | int, found: Found) -> None:
    content = _build(case, ask)
    found.builds += 1
    if isinstance(content, BuildFailure):
        found.refused += 1
        needed = needs if isinstance(needs, int) else needs.usage.total
        found.add(case, ask, check_refusal(content, ask, needed))
    else:
        found.add(case, ask, check(case, ask, content))


def _asks(layout: str, whole: BuildSuccess, needed: int) -> Iterator[Ask]:
    """Yield every wish for a layout."""
    everything = max(parts_of(whole).remembered, LEAST_MEMORY)
    some, spare = max(everything // 4, LEAST_MEMORY), whole.usage.total - needed
    limits = (
        Ask(layout=layout, memory_tokens=LEAST_MEMORY),
        Ask(layout=layout, memory_tokens=some),
        Ask(layout=layout, memory_tokens=everything),
        Ask(layout=layout, max_tokens=needed),
        Ask(layout=layout, max_tokens=needed + 100),
        Ask(layout=layout, max_tokens=needed + spare // 2, memory_tokens=some),
        Ask(layout=layout, max_tokens=needed + spare, memory_limit=20),
    )
    for strategy in CHOICES:
        yield from (replace(limit, strategy=strategy) for limit in limits)


def _protected(case: Case, layout: str) -> int:
    """Return the tokens of the parts that may not go, or 0 where the case can't be built."""
    whole = _build(case, Ask(layout="tagged", strategy="none"))
    if isinstance(whole, BuildFailure):
        return 0
    return floor(parts_of(whole), layout=layout, tools=cost_of_tools(case.tools or ()))


def _build(case: Case, ask: Ask) -> BuildSuccess | BuildFailure:
    """Build a context; a crash is reported as a refusal, so that the other builds go on."""
    try:
        request = BuildRequest.model_validate(_request(case, ask))
        return asyncio.run(_builder().build(request)).content
    except Exception as error:  # noqa: BLE001 - whatever a conversation brings about is a figure
        body = ErrorBody(code="crash", title="", detail=repr(error), retryable=False)
        return BuildFailure(error=body)


def _request(case: Case, ask: Ask) -> dict[str, Any]:
    context = {
        "strategy": ask.strategy,
        "layout": ask.layout,
        "format": ask.form,
        "max_tokens": ask.max_tokens,
        "reserve_tokens": 0,
        "memory_tokens": ask.memory_tokens,
        "memory_limit": ask.memory_limit,
        "past": case.past,
        "explain": True,
    }
    content = {
        "tools": case.tools,
        "history": [{"id": "in", "content": case.words}, *case.run],
        "metadata": {
            "user_profile": {"prompt_overrides": {"friends_profile": "Likes short answers. " * 9}},
            "client_timestamp_utc": "2025-12-10T08:00:00Z",
            "context": context,
        },
    }
    return {"id": "q", "owner_key": "o", "content": content}


@lru_cache(maxsize=1)
def _builder() -> ContextBuilder:
    """Return the builder of this process."""
    tokenizers = TiktokenTokenizers()
    return ContextBuilder(
        sources=Sources(
            history=MemoryHistory(lambda: tokenizers.counter("o200k_base"), now),
            profiles=MemoryProfiles(),
            tools=InMemoryToolRegistry(),
        ),
        tokenizers=tokenizers,
        clock=now,
    )
