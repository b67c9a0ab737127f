"""PromptLoader: the user's prompt, the project's and facts about the machine, as one prompt."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from prompts.environment import SystemFacts, format_environment
from prompts.layers import LoadedPrompt, join_prompts
from service.adapters.files import personal_folder, read_text

#: The name of prompt files.
PROMPT_FILE: Final = "NEXUS.md"
#: The prompt of users who have none.
DEFAULT_PROMPT: Final = Path(__file__).with_name(PROMPT_FILE)


class PromptSource(Protocol):
    """A source of a prompt."""

    def load(self) -> str | None:
        """Return the prompt, or None. Raises `PromptError`."""

    @property
    def path(self) -> Path | None:
        """The file that the prompt is in, if any."""


class FilePromptSource:
    """A prompt in a file, which may be missing."""

    def __init__(self, path: Path, folder: Path | None = None) -> None:
        """Take a file, and the folder that no link may leave."""
        self._path = path
        self._folder = folder

    @property
    def path(self) -> Path:
        """The file, whether or not it exists."""
        return self._path

    def load(self) -> str | None:
        """Return the current text of the file; None if it doesn't exist. Raises `PromptError`."""
        return read_text(self._path, self._folder)


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
        #: The files that `load` read last; None if it found none.
        self.personal_path: Path | None = None
        self.project_path: Path | None = None

    @property
    def loaded_from(self) -> Path | None:
        """Return `personal_path`, by its former name."""
        return self.personal_path

    def load(self, is_repl: bool = True) -> LoadedPrompt:
        """Return the prompt as the sources have it now; an empty file counts as available.

        Raises:
            PromptError: A file exists and can't be used.
        """
        personal = self._personal
        if personal is None:
            folder = personal_folder()
            own = [FilePromptSource(folder / PROMPT_FILE, folder)] if folder else []
            personal = [*own, FilePromptSource(DEFAULT_PROMPT)]
        project = [self._project or FilePromptSource(Path(PROMPT_FILE), Path())]
        personal_text, self.personal_path = _load_first(personal)
        project_text, self.project_path = _load_first(project)
        return LoadedPrompt(
            content=join_prompts(personal_text, project_text, get_system_info(is_repl)),
            personal_path=self.personal_path,
            project_path=self.project_path,
        )


def _load_first(sources: Sequence[PromptSource]) -> tuple[str, Path | None]:
    for source in sources:
        text = source.load()
        if text is not None:
            return text, source.path.absolute() if source.path else None
    return "", None


def get_system_info(
    is_repl: bool = True, *, cwd: Path | None = None, facts: SystemFacts | None = None
) -> str:
    """Return the `# Environment` section, by default of this machine and its working directory."""
    return format_environment(facts or system_facts(cwd), is_repl=is_repl)


def system_facts(cwd: Path | None = None) -> SystemFacts:
    """Return facts about this process and its machine; unknown ones are empty."""
    try:
        folder = str((cwd or Path()).absolute())
    except OSError:  # it was deleted
        folder = ""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except (OSError, ValueError):
        distribution = ""
    return SystemFacts(
        working_directory=folder,
        system=platform.system(),
        release=platform.release(),
        distribution=distribution,
        macos=platform.mac_ver()[0],
        terminal_program=os.environ.get("TERM_PROGRAM", ""),
        terminal=os.environ.get("TERM", ""),
    )
