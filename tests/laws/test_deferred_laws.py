"""Laws of contexts with deferred tools, whose searches the builds answer."""

from collections import Counter
from dataclasses import replace
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from bench.recounts import cost_of_tools, parts_of, unanswered
from formatters.deferred import STAND_INS
from formatters.providers.formats import FORMATS
from service.adapters.tools.registry import InMemoryToolRegistry
from service.builder import ContextBuilder
from service.config.content import ToolsSettings
from tests.laws.building import AMPLE, build, every_strategy, law_builder
from tests.laws.examples import ASKED, Asked, choices, few
from tests.support import SEARCH
from tests.validity.canonical import canonical
from tests.validity.forms import VALIDATORS

NAMES = ("web_search", "git__query", "word")


@cache
def deferring() -> ContextBuilder:
    """Return a builder that defers three tools."""
    registry = InMemoryToolRegistry()
    for name in NAMES:
        registry.register({**SEARCH, "function": {**_function(), "name": name}})
    builder = law_builder()
    settings = builder.settings.model_copy(update={"tools": ToolsSettings(defer=True)})
    return replace(builder, sources=replace(builder.sources, tools=registry), settings=settings)


def _function() -> dict[str, object]:
    function = SEARCH["function"]
    assert isinstance(function, dict)
    return function


@every_strategy
@few
@given(asked=ASKED, share=st.floats(0.1, 1), form=st.sampled_from([*FORMATS]), data=st.data())
def test_searches_keep_the_promises(
    name: str, asked: Asked, share: float, form: str, data: st.DataObject
) -> None:
    """Counts are exact and within the budget, and every row is decided on once.

    The array is the same whatever is searched for, each search has one result, and every provider
    takes it.
    """
    context = {**asked.context, "format": form}
    asked = replace(asked, tools=[], summaries=[], context=context)
    strategy = data.draw(choices(name))
    whole = build(asked, strategy, builder=deferring(), max_tokens=AMPLE)
    assert whole.status == "success"
    available = max(int(share * whole.usage.total), 1)

    content = build(asked, strategy, builder=deferring(), max_tokens=available)

    if content.status == "error":
        assert content.error.code == "budget_exceeded"
        return
    usage, decided = content.usage, [id_ for d in content.decisions for id_ in d.message_ids]
    assert usage.blocks == parts_of(content).costs
    assert usage.tools == cost_of_tools(content.tools)
    assert sum(usage.blocks.values()) + usage.tools == usage.total <= available
    assert Counter(decided) == Counter(set(asked.candidates))
    assert content.tools == list(STAND_INS)
    assert unanswered(content.messages) == []
    assert canonical(content.messages, content.tools) == []
    if form in VALIDATORS:
        assert VALIDATORS[form](content.provider_request or {}, []) == []
    assert build(asked, strategy, builder=deferring(), max_tokens=available) == content
