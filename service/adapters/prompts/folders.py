"""ContextLoader: instructions, configuration and MCP servers of folders, in layers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from prompts.layers import Config, ContextLayer, LoadedContext, merge_layers
from service.adapters.prompts.loader import (
    PERSONAL_FOLDER,
    get_system_info,
    personal_folder,
    read_object,
    read_text,
)
from service.errors import PromptError

#: Names of instruction files; of several in one folder, the first counts.
INSTRUCTION_FILES: Final = ("NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md")
CONFIG_FILE: Final = "config.json"
MCP_FILE: Final = "mcp.json"
#: Folders above the project that are looked into.
ANCESTORS: Final = 2


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the files of one layer stand."""

    label: str
    #: The folder that holds nothing else, whose files go before; None where it is another layer's.
    own: Path | None
    #: The folder around it, which holds a project's files as well; None for the home.
    around: Path | None = None

    def instructions(self, names: Sequence[str]) -> list[Path]:
        """Return where files of these names may stand, in the order in which they count."""
        return [place / name for place in (self.own, self.around) if place for name in names]


class ContextLoader:
    """Loads the layers around a project: the home's, those of folders above it, its own."""

    def __init__(
        self,
        cwd: Path | None = None,
        *,
        instruction_files: Sequence[str] = INSTRUCTION_FILES,
        global_dir: Path | None = None,
        ancestors: int = ANCESTORS,
    ) -> None:
        """Take the project's folder; else it is the working directory at the time of `load`.

        ``global_dir`` is ``~/.nexus3`` where it is not given.
        """
        self._cwd = cwd
        self._names = tuple(instruction_files)
        self._global = global_dir
        self._ancestors = ancestors

    def load(self, is_repl: bool = True) -> LoadedContext:
        """Return all layers as they are now, put together.

        Raises:
            PromptError: A file is there and can't be used; names it.
        """
        return merge_layers(self.layers(), get_system_info(is_repl))

    def layers(self) -> list[ContextLayer]:
        """Return the layers as they are now, the farthest first; raises `PromptError`."""
        return [_configured(self._instructed(folder), folder) for folder in self._folders()]

    def instructions(self) -> list[ContextLayer]:
        """Return the layers with their prompts alone; raises `PromptError`."""
        return [self._instructed(folder) for folder in self._folders()]

    def instruction_paths(self) -> list[Path]:
        """Return where instruction files may stand, whether or not they do."""
        return [path for folder in self._folders() for path in folder.instructions(self._names)]

    def _folders(self) -> Iterator[Folder]:
        home = self._global or personal_folder()
        home = home and _resolved(home)
        yield Folder("global", home)
        project = _resolved(self._cwd or Path())
        above = reversed(project.parents[: self._ancestors])
        for label, folder in (
            *((f"ancestor:{each.name or each}", each) for each in above),
            ("local", project),
        ):
            own = folder / PERSONAL_FOLDER
            yield Folder(label, None if own == home else own, folder)

    def _instructed(self, folder: Folder) -> ContextLayer:
        for path in folder.instructions(self._names):
            text = read_text(path)
            if text is not None:
                return ContextLayer(label=folder.label, prompt=text, prompt_path=path)
        return ContextLayer(label=folder.label)


def _configured(layer: ContextLayer, folder: Folder) -> ContextLayer:
    config, config_path = _object(folder.own, CONFIG_FILE)
    listed, mcp_path = _object(folder.own, MCP_FILE)
    return replace(
        layer,
        config=config,
        config_path=config_path,
        mcp_servers=_servers(listed, mcp_path),
        mcp_path=mcp_path,
    )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle, or a deleted folder
        raise PromptError(f"{path}: cannot be read: {error}") from error


def _object(folder: Path | None, name: str) -> tuple[Config, Path | None]:
    found = read_object(folder / name) if folder else None
    return ({}, None) if folder is None or found is None else (found, folder / name)


def _servers(listed: Config, path: Path | None) -> dict[str, Config]:
    """Return servers by name: an object of them at ``mcpServers``, or a list at ``servers``."""
    named = listed.get("mcpServers", {})
    others = listed.get("servers", [])
    if not isinstance(named, Mapping) or not isinstance(others, list):
        raise PromptError(f"{path}: mcpServers must be an object, servers a list")
    found = {**named}
    for server in others:
        if not isinstance(server, Mapping) or not isinstance(server.get("name"), str):
            raise PromptError(f"{path}: each of servers must be an object with a name")
        found[server["name"]] = {key: value for key, value in server.items() if key != "name"}
    for name, server in found.items():
        if not isinstance(server, Mapping):
            raise PromptError(f"{path}: the server {name!r} must be an object")
    return found
