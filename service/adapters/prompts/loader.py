"""PromptLoader: the user's prompt, the project's and facts about the machine, as one prompt."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from prompts.environment import SystemFacts, format_environment
from prompts.layers import LoadedPrompt, join_prompts
from service.adapters.prompts.files import personal_folder, read_text

#: The name of prompt files.
PROMPT_FILE: Final = "NEXUS.md"
#: The prompt of users who have none.
DEFAULT_PROMPT: Final = Path(__file__).with_name(PROMPT_FILE)


class PromptSource(Protocol):
    """A source of a prompt."""

    def load(self) -> str | None:
        """Return the prompt, or None. Raises `PromptError`."""
        ...

    @property
    def path(self) -> Path | None:
        """The file that the prompt is in, if any."""
        ...


class FilePromptSource:
    """A prompt in a file, which may be missing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file, whether or not it exists."""
        return self._path

    def load(self) -> str | None:
        """Return the current text of the file; None if it doesn't exist. Raises `PromptError`."""
        return read_text(self._path)


class PromptLoader:
    """Loads the first available prompt of the user, and the project's."""

    def __init__(
        self,
        personal_sources: Sequence[PromptSource] | None = None,
        project_source: PromptSource | None = None,
    ) -> None:
        """Take sources; by default files of the home, or the default prompt, and of the project.

        The project is the working directory at the time of `load`.
        """
        self._personal = personal_sources
        self._project = project_source

    def load(self, is_repl: bool = True) -> LoadedPrompt:
        """Return the prompt as the sources have it now; an empty file counts as available.

        Raises:
            PromptError: A file exists and can't be used.
        """
        personal = _default_sources() if self._personal is None else self._personal
        project = [self._project or FilePromptSource(Path(PROMPT_FILE))]
        personal_text, personal_path = _load_first(personal)
        project_text, project_path = _load_first(project)
        return LoadedPrompt(
            content=join_prompts(personal_text, project_text, get_system_info(is_repl)),
            personal_path=personal_path,
            project_path=project_path,
        )


def _default_sources() -> list[PromptSource]:
    folder = personal_folder()
    paths = [*([folder / PROMPT_FILE] if folder else []), DEFAULT_PROMPT]
    return [FilePromptSource(path) for path in paths]


def _load_first(sources: Sequence[PromptSource]) -> tuple[str, Path | None]:
    for source in sources:
        text = source.load()
        if text is not None:
            return text, source.path
    return "", None


def get_system_info(is_repl: bool = True, *, facts: SystemFacts | None = None) -> str:
    """Return the `# Environment` section, by default of this machine."""
    return format_environment(facts or system_facts(), is_repl=is_repl)


def system_facts() -> SystemFacts:
    """Return facts about this process and its machine; unknown ones are empty."""
    return SystemFacts(
        working_directory=_working_directory(),
        system=platform.system(),
        release=platform.release(),
        distribution=_distribution(),
        macos=platform.mac_ver()[0],
        terminal_program=os.environ.get("TERM_PROGRAM", ""),
        terminal=os.environ.get("TERM", ""),
    )


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted
        return ""


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except (OSError, ValueError):
        return ""
