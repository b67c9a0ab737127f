import copy
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formatters.model import Block, Entry, Facts, Tool
from prompts.capabilities import capabilities
from service.adapters.tokens.encodings import load_encoding

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["function", "name", "description", "parameters", "properties", "required", "type"]
            )
            | st.text(max_size=6),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)

#: JSON that has the outline of a tool, so that odd values are where they are read.
TOOL_LIKE = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON,
        "description": JSON,
        "parameters": JSON
        | st.fixed_dictionaries(
            {"properties": JSON | st.dictionaries(st.text(max_size=6), JSON, max_size=3)},
            optional={"required": JSON},
        ),
    },
)
ANY_TOOL = JSON | TOOL_LIKE | st.fixed_dictionaries({"function": JSON | TOOL_LIKE})


def shown(tools: list[object]) -> Block:
    """Show strangers' JSON as tools."""
    return capabilities(Facts(current_input="", tools=cast("tuple[Tool, ...]", tuple(tools))))


@settings(deadline=None)
@given(st.lists(ANY_TOOL, max_size=3))
def test_any_json_is_shown(tools: list[object]) -> None:
    """Arbitrary JSON in place of tools is shown, an entry each, and stays as it was."""
    before = copy.deepcopy(tools)

    block = shown(tools)

    assert len(block.entries) == len(tools)
    assert repr(tools) == repr(before)
    assert block == shown(tools)
    for each in block.entries:
        forms = (each.text, *each.shorter)
        assert all(form.startswith("### ") for form in forms)
        assert each.text.endswith("\n")
        assert [len(form) for form in forms] == sorted({len(form) for form in forms}, reverse=True)
        assert forms[-1] == each.text.splitlines()[0]


@pytest.fixture(params=["o200k_base", "cl100k_base"], scope="module")
def encode(request: pytest.FixtureRequest) -> Callable[[str], list[int]]:
    """Split a text into tokens."""
    encode: Callable[[str], list[int]] = load_encoding(request.param).encode_ordinary
    return encode


@settings(deadline=None)
@given(tools=st.lists(TOOL_LIKE, min_size=1, max_size=3), data=st.data())
def test_token_counts_add_up(
    encode: Callable[[str], list[int]], tools: list[object], data: st.DataObject
) -> None:
    """The tokens of the block are those of its heading and its entries, whatever their forms."""
    block = shown(tools)
    texts = [data.draw(st.sampled_from((each.text, *each.shorter))) for each in block.entries]

    whole = replace(block, entries=tuple(Entry(text=text) for text in texts)).text
    parts = [block.heading, *(f"{text}\n" for text in texts[:-1]), texts[-1]]

    assert len(encode(whole)) == sum(len(encode(part)) for part in parts)
