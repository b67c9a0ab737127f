"""Build generated requests as a peer would, and say what may not be left out of the answer."""

import asyncio
import atexit
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recounts import cost_of_tools, floor, parts_of
from formatters.model import Summary
from formatters.rows import fix_surrogates
from prompts.system_prompt import EveryNTurns, SystemInjector, SystemPrompt
from service.adapters.memory.store import MemoryHistory, MemoryProfiles
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.build.gather import Sources
from service.builder import ContextBuilder
from service.config.content import PromptsSettings
from service.config.settings import MemorySettings, Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildFailure, BuildSuccess
from tests.laws.examples import ASKED, CHOICES, Asked, choices, few
from tests.support import NOW, FixedHistory, Written

#: Tokens next to the protected parts: hardly any, some, or plenty.
SPARE: Final = st.one_of(st.integers(0, 200), st.integers(0, 3_000))

#: Tokens for all that holds history.
CAPS: Final = st.one_of(st.none(), st.integers(64, 160), st.integers(64, 2_000))

every_strategy = pytest.mark.parametrize("name", CHOICES)

#: A law of a context that fits: what was asked, and what came of it.
Law = Callable[[Asked, BuildSuccess], None]

#: A limit that every generated context fits into.
AMPLE = 1_000_000


def _reminding() -> SystemPrompt:
    """Return the shipped identity, with a reminder in every second turn."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(2), "Be brief.\n[MOOD] is a hint.")
    return SystemPrompt(injector=injector)


_TOKENIZERS: Final = TiktokenTokenizers()


@cache
def law_builder(tool_results: Any = "recalled") -> ContextBuilder:
    """Return the builder of all laws; to load its tokenizer takes half a second."""
    tokenizers = _TOKENIZERS
    return ContextBuilder(
        sources=Sources(
            history=MemoryHistory(lambda: tokenizers.counter("o200k_base"), lambda: NOW),
            profiles=MemoryProfiles(),
            tools=InMemoryToolRegistry(),
            prompts=Written(_reminding()),
        ),
        tokenizers=tokenizers,
        clock=lambda: NOW,
        settings=Settings(
            prompts=PromptsSettings(allow_request_identity=True),
            memory=MemorySettings(tool_results=tool_results),
        ),
    )


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all laws; one for each build would take as long as a small build does."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


class Summarized:
    """The summaries of one generated past."""

    def __init__(self, asked: Asked) -> None:
        rows = iter([row["id"] for row in asked.past])
        taken = [(tuple(islice(rows, covered)), text) for covered, text in asked.summaries]
        self._summaries = [
            Summary(
                id=f"s{place}",
                owner_key="o",
                text=fix_surrogates(text),
                message_ids=ids,
                tokens=1,
                created=NOW,
                summarizer="test",
                fingerprint="",
            )
            for place, (ids, text) in enumerate(taken)
            if ids
        ]

    async def read(self, owner_key: str, conversation_id: str | None = None) -> list[Summary]:
        """Return the summaries."""
        return self._summaries


def summarized(asked: Asked) -> ContextBuilder:
    """Return a builder that has the past stored, and its summaries next to it."""
    kept: Any = Summarized(asked)
    builder = law_builder(asked.tool_results)
    sources = replace(builder.sources, history=FixedHistory(asked.past), summaries=kept)
    return replace(builder, sources=sources)


def build(
    asked: Asked, strategy: object, *, builder: ContextBuilder | None = None, **context: Any
) -> BuildSuccess | BuildFailure:
    """Build a context, by default with `law_builder`; ``context`` overrides the request."""
    options = {"max_tokens": AMPLE, **asked.context, **context, "strategy": strategy}
    past: list[Any] | None = asked.past
    builder = builder or law_builder(asked.tool_results)
    if asked.summaries:
        past, builder = None, summarized(asked)
    content = {
        "tools": asked.tools,
        "history": [{"id": "q", "content": asked.words}, *asked.run],
        "metadata": {
            "user_profile": {"prompt_overrides": {"friends_profile": asked.profile}},
            "context": {"past": past, "explain": True, "reserve_tokens": 0, **options},
        },
    }
    request = BuildRequest.model_validate(
        {"id": "q", "run_id": "run_q", "owner_key": "o", "content": content}
    )
    return _loop().run_until_complete(builder.build(request)).content


def built(asked: Asked, strategy: object, **context: Any) -> BuildSuccess:
    """Build a context that has to come about."""
    content = build(asked, strategy, **context)
    assert content.status == "success", content.error.detail
    return content


def whole(asked: Asked, **context: Any) -> BuildSuccess:
    """Build the context that lacks nothing."""
    return built(asked, "none", **context)


def protected(asked: Asked, strategy: object) -> int:
    """Return the tokens of what may not go, each part in its smallest form."""
    full, most = (parts_of(built(asked, each, layout="tagged")) for each in ("none", strategy))
    return floor(
        full,
        layout=asked.layout,
        tools=cost_of_tools(asked.tools or ()),
        history=most.texts["SHARED_MEMORY"] == full.texts["SHARED_MEMORY"],
    )


def written(content: BuildSuccess) -> bytes:
    """Return an answer as it goes over the bus."""
    return json.dumps(content.model_dump(mode="json"), ensure_ascii=False).encode()


def of_all_that_fits(law: Law) -> Callable[..., None]:
    """Test a law on contexts of every strategy; only `none` may refuse to build one."""

    def test(name: str, asked: Asked, spare: int, cap: int | None, data: st.DataObject) -> None:
        strategy = data.draw(choices(name))
        available = protected(asked, strategy) + spare
        content = build(asked, strategy, max_tokens=available, memory_tokens=cap)
        if content.status == "success":
            law(asked, content)
        else:
            assert name == "none"

    test.__name__, test.__qualname__, test.__module__ = law.__name__, law.__name__, law.__module__
    test.__doc__ = law.__doc__
    generated = given(asked=ASKED, spare=SPARE, cap=CAPS, data=st.data())
    over_all: Callable[..., None] = every_strategy(few(generated(test)))
    return over_all
