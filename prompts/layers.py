"""Prompts and configuration in layers: what is nearer to the work goes on top.

Pure: an adapter reads the files, this puts together what they hold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from formatters.guard import one_line
from prompts.system_prompt import GAP

#: Stands in for a prompt where nothing was loaded.
NO_PROMPT: Final = "You are a helpful AI assistant."

Config = Mapping[str, object]


class Place(Protocol):
    """Where something was read: a path, with which nothing is done here."""

    def __fspath__(self) -> str:
        """Return it as text."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedPrompt:
    """A system prompt, and where its parts came from."""

    content: str
    #: None where nothing was found.
    personal_path: Place | None = None
    project_path: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLayer:
    """What one folder adds."""

    #: ``global``, ``ancestor:`` with the folder's name, or ``local``.
    label: str
    prompt: str = ""
    prompt_path: Place | None = None
    config: Config = field(default_factory=dict)
    config_path: Place | None = None
    #: By name.
    mcp_servers: Mapping[str, Config] = field(default_factory=dict)
    mcp_path: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSources:
    """Where the pieces of a context came from, each list in the order of the layers."""

    prompts: tuple[Place, ...] = ()
    configs: tuple[Place, ...] = ()
    #: By the server's name: the file whose word counts.
    mcp_servers: Mapping[str, Place | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedContext:
    """All layers as one."""

    system_prompt: str
    merged_config: dict[str, object]
    mcp_servers: dict[str, Config]
    sources: ContextSources
    layers: tuple[ContextLayer, ...]


def join_prompts(personal: str, project: str, system_info: str) -> str:
    """Return a personal and a project's prompt under their headings, then the system's facts.

    A text that is blank has no heading; where both are, a plain prompt stands in for them.
    """
    parts = [
        f"# {heading} Configuration\n{text.strip()}"
        for heading, text in (("Personal", personal), ("Project", project))
        if text.strip()
    ]
    return GAP.join([*(parts or [NO_PROMPT]), system_info])


def merge_layers(layers: Sequence[ContextLayer], system_info: str) -> LoadedContext:
    """Put layers together, given from the farthest to the nearest; the nearer goes before."""
    config: dict[str, object] = {}
    servers: dict[str, Config] = {}
    places: dict[str, Place | None] = {}
    for layer in layers:
        config = deep_merge(config, layer.config)
        servers |= layer.mcp_servers
        places |= dict.fromkeys(layer.mcp_servers, layer.mcp_path)
    return LoadedContext(
        system_prompt=GAP.join([format_layers(layers) or NO_PROMPT, system_info]),
        merged_config=config,
        mcp_servers=servers,
        sources=ContextSources(
            prompts=_places(layer.prompt_path for layer in layers),
            configs=_places(layer.config_path for layer in layers),
            mcp_servers=places,
        ),
        layers=tuple(layers),
    )


def format_layers(layers: Iterable[ContextLayer]) -> str:
    """Return the prompts of layers, each with its heading and source; nothing where all are blank.

    A folder's name and a source are folded onto their line.
    """
    sections = [
        f"## {_title(layer.label)}\n{_source(layer)}\n{layer.prompt.strip()}"
        for layer in layers
        if layer.prompt.strip()
    ]
    return GAP.join(["# System Configuration", *sections]) if sections else ""


def deep_merge(below: Config, above: Config) -> dict[str, object]:
    """Return both as one: objects are merged, any other value of ``above`` replaces ``below``'s."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = deep_merge(known, value)
        else:
            merged[key] = value
    return merged


def _title(label: str) -> str:
    kind, _, folder = label.partition(":")
    name = "Project" if kind == "local" else kind.capitalize()
    # a folder's name may hold line ends
    return one_line(f"{name} Configuration" + (f" ({folder})" if folder else ""))


def _source(layer: ContextLayer) -> str:
    return one_line(f"Source: {layer.prompt_path}") + "\n" if layer.prompt_path else ""


def _places(places: Iterable[Place | None]) -> tuple[Place, ...]:
    return tuple(place for place in places if place is not None)
