"""Build generated requests as a peer would, and say what may not be left out of the answer."""

import asyncio
import json
from typing import Any

from bench.recounts import cost_of_tools, floor, parts_of
from prompts.injector import EveryNTurns, SystemInjector
from prompts.system_prompt import SystemPrompt
from service.adapters.memory.store import MemoryHistory, MemoryProfiles
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.builder import ContextBuilder
from service.config.prompts import PromptsSettings
from service.config.settings import Settings
from service.gather import Sources
from service.result import BuildFailure, BuildSuccess
from service.wire import BuildRequest
from tests.laws.examples import Asked
from tests.support import NOW, Written

#: A limit that every generated context fits into.
AMPLE = 1_000_000


def _reminding() -> SystemPrompt:
    """Return the shipped identity, with a reminder in every second turn."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(2), "Be brief.\n[MOOD] is a hint.")
    return SystemPrompt(injector=injector)


_tokenizers = TiktokenTokenizers()
_builder = ContextBuilder(
    sources=Sources(
        history=MemoryHistory(_tokenizers.counter("o200k_base"), lambda: NOW),
        profiles=MemoryProfiles(),
        tools=InMemoryToolRegistry(),
        prompts=Written(_reminding()),
    ),
    tokenizers=_tokenizers,
    clock=lambda: NOW,
    settings=Settings(prompts=PromptsSettings(allow_request_identity=True)),
)


def build(asked: Asked, strategy: object, **context: Any) -> BuildSuccess | BuildFailure:
    """Build a context; ``context`` goes before what was asked."""
    options = {"max_tokens": AMPLE, **asked.context, **context, "strategy": strategy}
    content = {
        "tools": asked.tools,
        "history": [{"id": "q", "content": asked.words}, *asked.run],
        "metadata": {
            "user_profile": {"prompt_overrides": {"friends_profile": asked.profile}},
            "context": {"past": asked.past, "explain": True, "reserve_tokens": 0, **options},
        },
    }
    request = BuildRequest.model_validate(
        {"id": "q", "run_id": "run_q", "owner_key": "o", "content": content}
    )
    return asyncio.run(_builder.build(request)).content


def built(asked: Asked, strategy: object, **context: Any) -> BuildSuccess:
    """Build a context that has to come about."""
    content = build(asked, strategy, **context)
    assert content.status == "success", content.error.detail
    return content


def whole(asked: Asked, **context: Any) -> BuildSuccess:
    """Build the context that lacks nothing."""
    return built(asked, "none", **context)


def protected(asked: Asked) -> int:
    """Return the tokens of what may not go, each part in its smallest form."""
    full = parts_of(whole(asked, layout="tagged"))
    return floor(full, layout=asked.layout, tools=cost_of_tools(asked.tools or ()))


def written(content: BuildSuccess) -> bytes:
    """Return an answer as it goes over the bus."""
    return json.dumps(content.model_dump(mode="json"), ensure_ascii=False).encode()
