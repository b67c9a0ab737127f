"""Builders for unit tests: in memory, with a clock that is stopped."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from formatters.model import Tool
from service.adapters.memory.store import MemoryHistory, MemoryProfiles
from service.adapters.model_table import load_models
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.build.gather import Sources
from service.builder import ContextBuilder
from service.wire.request import BuildRequest
from tests.support import NOW, MakeBuilder, MakeRequest


@pytest.fixture(scope="session")
def tokenizers() -> TiktokenTokenizers:
    """Vocabularies are loaded once for all tests."""
    return TiktokenTokenizers()


@pytest.fixture
def make_builder(tokenizers: TiktokenTokenizers) -> MakeBuilder:
    """Make a builder in memory; keywords replace its parts."""

    def make(
        *, tools: Sequence[Tool] = (), sources: Mapping[str, Any] | None = None, **parts: Any
    ) -> ContextBuilder:
        registry = InMemoryToolRegistry()
        for tool in tools:
            registry.register(tool)
        given = {
            "history": MemoryHistory(lambda: tokenizers.counter("o200k_base"), lambda: NOW),
            "profiles": MemoryProfiles(),
            "tools": registry,
            **(sources or {}),
        }
        return ContextBuilder(
            **{
                "sources": Sources(**given),
                "tokenizers": tokenizers,
                "clock": lambda: NOW,
                "models": load_models().models,
                **parts,
            }
        )

    return make


@pytest.fixture
def make_request() -> MakeRequest:
    """Make a request in the short form; keywords go into its ``context``."""

    def make(
        current_input: str = "Hello there", *, owner_key: str = "o", **context: Any
    ) -> BuildRequest:
        return BuildRequest.model_validate(
            {
                "id": "msg_q",
                "run_id": "run_q",
                "owner_key": owner_key,
                "content": {"current_input": current_input, "context": context},
            }
        )

    return make
