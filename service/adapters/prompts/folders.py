"""ContextLoader: instructions, configuration and MCP servers of nested folders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from prompts.layers import Config, ContextLayer, LoadedContext, merge_layers
from service.adapters.files import PERSONAL_FOLDER, personal_folder, read_object, read_text
from service.adapters.prompts.loader import get_system_info
from service.errors import PromptError

#: The names of instruction files; of several in one folder, the first is used.
INSTRUCTION_FILES: Final = ("NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md")
CONFIG_FILE: Final = "config.json"
MCP_FILE: Final = "mcp.json"
#: The number of folders above the project that are read.
ANCESTORS: Final = 2


class ContextLoader:
    """Loads the layers of a project: the home's, those of folders above it, and its own."""

    def __init__(
        self,
        cwd: Path | None = None,
        *,
        instruction_files: Sequence[str] = INSTRUCTION_FILES,
        global_dir: Path | None = None,
        ancestors: int = ANCESTORS,
    ) -> None:
        """Take the project's folder, by default the working directory at the time of `load`.

        ``global_dir`` is ``~/.nexus3`` by default.
        """
        self._cwd = cwd
        self._names = tuple(instruction_files)
        self._global = global_dir
        self._ancestors = ancestors

    def load(self, is_repl: bool = True) -> LoadedContext:
        """Return the current layers, merged.

        Raises:
            PromptError: A file exists and can't be used; has its path.
        """
        return merge_layers(self.layers(), get_system_info(is_repl, cwd=self._cwd))

    def load_for_subagent(self, parent_context: LoadedContext | None = None) -> str:
        """Return the system prompt of a subagent: its parent's layers, then its own instructions.

        Without a parent, these are all layers; if the parent has the same instructions, its prompt.

        Raises:
            PromptError: A file exists and can't be used.
        """
        if parent_context is None:
            return self.load(is_repl=False).system_prompt
        own = self.instructions()[-1]
        if own.prompt_path in parent_context.sources.prompts:
            return parent_context.system_prompt
        layers = [*parent_context.layers, replace(own, label="subagent")]
        return merge_layers(layers, get_system_info(is_repl=False, cwd=self._cwd)).system_prompt

    def layers(self) -> list[ContextLayer]:
        """Return the current layers, the farthest first; raises `PromptError`."""
        layers = []
        for folder in self._folders():
            config, config_path = _read_config(folder, CONFIG_FILE)
            mcp_config, mcp_path = _read_config(folder, MCP_FILE)
            layer = replace(
                self._read_prompt(folder),
                config=config,
                config_path=config_path,
                mcp_servers=_servers(mcp_config, mcp_path),
                mcp_path=mcp_path,
            )
            layers.append(layer)
        return layers

    def instructions(self) -> list[ContextLayer]:
        """Return the current layers with their prompts only; raises `PromptError`."""
        return [self._read_prompt(folder) for folder in self._folders()]

    def instruction_paths(self) -> list[Path]:
        """Return the possible paths of instruction files, whether or not they exist."""
        return [path for folder in self._folders() for path in folder.paths(self._names)]

    def _folders(self) -> Iterator["LayerFolder"]:
        home = self._global or personal_folder()
        home = home and _resolve(home)
        yield LayerFolder("global", home)
        project = _resolve(self._cwd or Path())
        ancestors = reversed(project.parents[: self._ancestors])
        labels = [(f"ancestor:{parent.name or parent}", parent) for parent in ancestors]
        for label, folder in (*labels, ("local", project)):
            own = folder / PERSONAL_FOLDER
            yield LayerFolder(label, None if own == home else own, folder)

    def _read_prompt(self, folder: "LayerFolder") -> ContextLayer:
        for path in folder.paths(self._names):
            text = read_text(path, folder.root)
            if text is not None:
                return ContextLayer(label=folder.label, prompt=text, prompt_path=path)
        return ContextLayer(label=folder.label)


@dataclass(frozen=True, slots=True)
class LayerFolder:
    """The folders of one layer's files."""

    label: str
    #: The folder with nothing else in it, which takes precedence; None if it is another layer's.
    own: Path | None
    #: The folder around it, with the project's other files; None for the home.
    parent: Path | None = None

    @property
    def root(self) -> Path | None:
        """Return the folder that no link may leave."""
        return self.parent or self.own

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Return the possible paths of files with these names, by precedence."""
        return [folder / name for folder in (self.own, self.parent) if folder for name in names]


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, or a deleted folder
        raise PromptError(f"{path}: cannot be read: {error}") from error


def _read_config(folder: LayerFolder, name: str) -> tuple[Config, Path | None]:
    path = folder.own / name if folder.own else None
    config = read_object(path, folder.root) if path else None
    return ({}, None) if config is None else (config, path)


def _servers(config: Config, path: Path | None) -> dict[str, Config]:
    """Return servers by name: an object at ``mcpServers``, and a list at ``servers``."""
    by_name = config.get("mcpServers", {})
    listed = config.get("servers", [])
    if not isinstance(by_name, Mapping) or not isinstance(listed, list):
        raise PromptError(f"{path}: mcpServers must be an object, servers a list")
    servers = {**by_name}
    for server in listed:
        if not isinstance(server, Mapping) or not isinstance(server.get("name"), str):
            raise PromptError(f"{path}: each of servers must be an object with a name")
        servers[server["name"]] = {key: value for key, value in server.items() if key != "name"}
    for name, server in servers.items():
        if not isinstance(server, Mapping):
            raise PromptError(f"{path}: the server {name!r} must be an object")
    return servers
