"""Laws of contexts with less than the shipped prompts: a smaller system message, or none."""

import json
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recounts import cost, cost_of_tools
from prompts.identity import CORE_IDENTITY, QUOTING, WITHOUT_CAPABILITIES
from service.adapters.prompts.watched import WatchedPrompts
from service.builder import ContextBuilder
from service.config.content import PromptsSettings
from service.config.settings import Settings
from service.wire.response import BuildSuccess
from tests.laws.building import AMPLE, build, law_builder
from tests.laws.examples import ASKED, Asked, few
from tests.validity.canonical import canonical
from tests.validity.forms import VALIDATORS

IDENTITIES = ("nexus", "plain", "none")
CAPABILITIES = ("full", "names", "none")

every_setting = pytest.mark.parametrize(
    ("identity", "capabilities", "guard"),
    list(product(IDENTITIES, CAPABILITIES, ("gutter", "off"))),
)


@cache
def builder_with(identity: Any, capabilities: Any, guard: Any) -> ContextBuilder:
    """Return the builder of all laws with other settings."""
    prompts = PromptsSettings(identity=identity, capabilities=capabilities)
    sources = replace(law_builder().sources, prompts=WatchedPrompts(prompts))
    return replace(law_builder(), sources=sources, settings=Settings(prompts=prompts, guard=guard))


@every_setting
@few
@given(asked=ASKED, missing=st.integers(0, 400), form=st.sampled_from(sorted(VALIDATORS)))
def test_every_context_is_valid_and_counted(
    identity: str, capabilities: str, guard: str, asked: Asked, missing: int, form: str
) -> None:
    """APIs take it in every form and layout, it fits, and blocks and tools add up to its total."""
    builder = builder_with(identity, capabilities, guard)
    asked = replace(asked, summaries=[], context={**asked.context, "identity": None})
    whole = build(asked, "none", builder=builder, max_tokens=AMPLE)
    assert whole.status == "success"
    available = max(whole.usage.total - missing, 1)

    content = build(asked, "oldest_first", builder=builder, max_tokens=available, format=form)

    if content.status == "error":
        assert content.error.code == "budget_exceeded"
        return
    usage = content.usage
    assert usage.total <= available
    assert sum(usage.blocks.values()) + usage.tools == usage.total
    assert sum(map(cost, content.messages)) + cost_of_tools(content.tools) == usage.total
    assert canonical(content.messages, content.tools) == []
    assert VALIDATORS[form](content.provider_request or {}, ()) == []
    assert_as_set(content, identity, capabilities, guard)


def assert_as_set(content: BuildSuccess, identity: str, capabilities: str, guard: str) -> None:
    """Check that the context has the parts that the settings name, and no others."""
    says_nothing = identity == "none" and guard == "off"
    systems = [each["content"] for each in content.messages if each["role"] == "system"]
    assert len(systems) == (0 if says_nothing else 1)
    assert ("CORE_IDENTITY" in content.usage.blocks) is not says_nothing
    assert ("CAPABILITIES" in content.usage.blocks) is (capabilities != "none")
    if identity == "nexus":
        assert systems == [CORE_IDENTITY if capabilities != "none" else WITHOUT_CAPABILITIES]
    else:
        assert (QUOTING in "".join(systems)) is (guard == "gutter")
    shown = json.dumps(content.messages)
    assert capabilities == "full" or "Parameters:" not in shown
