"""Layers of prompts and configuration, put together."""

from pathlib import PurePath

from hypothesis import given
from hypothesis import strategies as st

from prompts.layers import (
    NO_PROMPT,
    ContextLayer,
    deep_merge,
    format_layers,
    join_prompts,
    merge_layers,
)

HERE = "# Environment\nMode: test"


def test_personal_and_project_stand_under_headings() -> None:
    """The personal prompt first, the facts about the system last."""
    assert join_prompts("P\n", "Q", HERE) == (
        f"# Personal Configuration\nP\n\n# Project Configuration\nQ\n\n{HERE}"
    )


def test_a_blank_prompt_has_no_heading() -> None:
    """If both are blank, a plain prompt is used."""
    assert join_prompts(" \n", "Q", HERE) == f"# Project Configuration\nQ\n\n{HERE}"
    assert join_prompts("", "", HERE) == f"{NO_PROMPT}\n\n{HERE}"


def layer(label: str, prompt: str = "", **parts: object) -> ContextLayer:
    """Return a layer with files at paths named after it."""
    name = label.partition(":")[0]
    paths = {
        "prompt_path": PurePath(name, "NEXUS.md") if prompt else None,
        "config_path": PurePath(name, "config.json") if "config" in parts else None,
        "mcp_path": PurePath(name, "mcp.json") if "mcp_servers" in parts else None,
    }
    return ContextLayer(label=label, prompt=prompt, **paths, **parts)  # type: ignore[arg-type]  # parts are a test's own


def test_each_layer_says_where_it_is_from() -> None:
    """The order is the one given: the farthest first."""
    layers = [layer("global", "G"), layer("ancestor:work", "A\n"), layer("local", "L")]

    assert merge_layers(layers, HERE).system_prompt == (
        "# System Configuration\n\n"
        "## Global Configuration\nSource: global/NEXUS.md\n\nG\n\n"
        "## Ancestor Configuration (work)\nSource: ancestor/NEXUS.md\n\nA\n\n"
        "## Project Configuration\nSource: local/NEXUS.md\n\nL\n\n"
        f"{HERE}"
    )


def test_layers_without_words_are_no_sections() -> None:
    """Nothing at all becomes the plain prompt."""
    layers = [layer("global", " "), layer("local")]

    assert format_layers(layers) == ""
    assert merge_layers(layers, HERE).system_prompt == f"{NO_PROMPT}\n\n{HERE}"


def test_a_heading_keeps_to_its_line() -> None:
    """No folder's name makes a section of its own, and a prompt of no file has no source."""
    text = format_layers([ContextLayer(label="ancestor:a\n## b", prompt="A")])

    assert text == "# System Configuration\n\n## Ancestor Configuration (a ## b)\n\nA"


def test_the_nearest_configuration_counts() -> None:
    """Objects are merged at any depth; lists and other values are replaced."""
    layers = [
        layer("global", config={"model": {"name": "a", "size": 1}, "tools": [1, 2], "keep": None}),
        layer("local", config={"model": {"name": "b"}, "tools": [3]}),
    ]

    loaded = merge_layers(layers, HERE)

    assert loaded.merged_config == {"model": {"name": "b", "size": 1}, "tools": [3], "keep": None}
    assert loaded.sources.configs == (PurePath("global/config.json"), PurePath("local/config.json"))


def test_servers_go_by_their_names() -> None:
    """The nearer file's word counts, whole; each knows its source."""
    layers = [
        layer("global", mcp_servers={"git": {"command": "a", "env": {}}, "web": {"url": "u"}}),
        layer("local", mcp_servers={"git": {"command": "b"}}),
    ]

    loaded = merge_layers(layers, HERE)

    assert loaded.mcp_servers == {"git": {"command": "b"}, "web": {"url": "u"}}
    assert loaded.sources.mcp_servers == {
        "git": PurePath("local/mcp.json"),
        "web": PurePath("global/mcp.json"),
    }


def test_sources_of_prompts_are_reported() -> None:
    """In the order of the layers, without those that have none."""
    layers = [layer("global", "G"), layer("ancestor:x"), layer("local", "L")]
    loaded = merge_layers(layers, HERE)

    assert loaded.sources.prompts == (PurePath("global/NEXUS.md"), PurePath("local/NEXUS.md"))
    assert loaded.layers == tuple(layers)


CONFIGS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.one_of(st.integers(), st.lists(st.integers(), max_size=2), st.none()),
        lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@given(below=CONFIGS, above=CONFIGS)
def test_merging_is_sound(below: dict[str, object], above: dict[str, object]) -> None:
    """What is on top is in the result, nothing given changes, and nothing is no change."""
    before = repr((below, above))
    merged = deep_merge(below, above)

    assert deep_merge(merged, above) == merged
    assert set(merged) == set(below) | set(above)
    assert deep_merge(below, {}) == below == deep_merge({}, below)
    assert repr((below, above)) == before
