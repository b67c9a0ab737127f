"""Prompts and configuration in layers, in which the layer nearest to the work wins.

This module merges what adapters have read from files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from formatters.guard import one_line
from prompts.system_prompt import SEPARATOR

#: The prompt if none was loaded.
NO_PROMPT: Final = "You are a helpful AI assistant."

Config = Mapping[str, object]


class SourcePath(Protocol):
    """The path that something was read from; it is only reported."""

    def __fspath__(self) -> str:
        """Return the path as text."""


@dataclass(frozen=True, slots=True)
class LoadedPrompt:
    """A system prompt, and the files of its parts."""

    content: str
    #: None if there is no such file.
    personal_path: SourcePath | None = None
    project_path: SourcePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLayer:
    """The prompt and configuration of one folder."""

    #: ``global``, ``ancestor:`` with the folder's name, ``local``, or ``subagent``.
    label: str
    prompt: str = ""
    prompt_path: SourcePath | None = None
    config: Config = field(default_factory=dict)
    config_path: SourcePath | None = None
    #: By name.
    mcp_servers: Mapping[str, Config] = field(default_factory=dict)
    mcp_path: SourcePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSources:
    """The files that a context was read from, each list in the order of the layers."""

    prompts: tuple[SourcePath, ...] = ()
    configs: tuple[SourcePath, ...] = ()
    #: By the server's name: the file whose definition is used.
    mcp_servers: Mapping[str, SourcePath | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedContext:
    """The merged layers of a project."""

    system_prompt: str
    merged_config: dict[str, object]
    mcp_servers: dict[str, Config]
    sources: ContextSources
    layers: tuple[ContextLayer, ...]


def join_prompts(personal: str, project: str, environment: str) -> str:
    """Return the personal and the project's prompt under their headings, and the environment.

    A blank prompt gets no heading; if both are blank, `NO_PROMPT` is used.
    """
    parts = [
        f"# {heading} Configuration\n{text.strip()}"
        for heading, text in (("Personal", personal), ("Project", project))
        if text.strip()
    ]
    return SEPARATOR.join([*(parts or [NO_PROMPT]), environment])


def merge_layers(layers: Sequence[ContextLayer], environment: str) -> LoadedContext:
    """Merge layers, given from the farthest to the nearest, which takes precedence."""
    config: dict[str, object] = {}
    servers: dict[str, Config] = {}
    server_paths: dict[str, SourcePath | None] = {}
    for layer in layers:
        config = deep_merge(config, layer.config)
        servers |= layer.mcp_servers
        server_paths |= dict.fromkeys(layer.mcp_servers, layer.mcp_path)
    return LoadedContext(
        system_prompt=SEPARATOR.join([format_layers(layers) or NO_PROMPT, environment]),
        merged_config=config,
        mcp_servers=servers,
        sources=ContextSources(
            prompts=tuple(layer.prompt_path for layer in layers if layer.prompt_path is not None),
            configs=tuple(layer.config_path for layer in layers if layer.config_path is not None),
            mcp_servers=server_paths,
        ),
        layers=tuple(layers),
    )


def format_layers(layers: Iterable[ContextLayer]) -> str:
    """Return the prompts of layers, each with its heading and source; empty if all are blank."""
    sections = []
    for layer in layers:
        if prompt := layer.prompt.strip():
            source = one_line(f"Source: {layer.prompt_path}") + "\n" if layer.prompt_path else ""
            sections.append(f"## {_title(layer.label)}\n{source}\n{prompt}")
    return SEPARATOR.join(["# System Configuration", *sections]) if sections else ""


def deep_merge(base: Config, override: Config) -> dict[str, object]:
    """Merge two objects key by key; values that aren't both objects are taken from ``override``."""
    merged = dict(base)
    for key, value in override.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = deep_merge(known, value)
        else:
            merged[key] = value
    return merged


def _title(label: str) -> str:
    kind, _, folder = label.partition(":")
    name = "Project" if kind == "local" else kind.capitalize()
    # the name of a folder may have line ends
    return one_line(f"{name} Configuration" + (f" ({folder})" if folder else ""))
