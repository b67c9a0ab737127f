"""PromptLoader: a personal prompt, a project's, and facts about the machine, as one prompt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from prompts.layers import LoadedPrompt, joined_prompt
from service.adapters.prompts.machine import get_system_info
from service.adapters.prompts.reading import read_text

#: What prompt files are called.
PROMPT_FILE: Final = "NEXUS.md"
#: Where people keep their own, below their home.
PERSONAL_FOLDER: Final = ".nexus3"
#: The prompt of people who have none.
DEFAULT_PROMPT: Final = Path(__file__).with_name(PROMPT_FILE)


class PromptSource(Protocol):
    """Somewhere that a prompt comes from."""

    def load(self) -> str | None:
        """Return the prompt; None where there is none. Raises `PromptError`."""
        ...

    @property
    def path(self) -> Path | None:
        """Where it stands, if in a file."""
        ...


class FilePromptSource:
    """A prompt in a file, which may be missing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """Where it stands, or would stand."""
        return self._path

    def load(self) -> str | None:
        """Return what the file holds now; None where there is none. Raises `PromptError`."""
        return read_text(self._path)


class PromptLoader:
    """Loads the first personal prompt that there is, and the project's."""

    def __init__(
        self,
        personal_sources: Sequence[PromptSource] | None = None,
        project_source: PromptSource | None = None,
    ) -> None:
        """Take sources; without them the home's, else the shipped prompt, and the project's file.

        The project is the working directory at the time of `load`.
        """
        self._personal = personal_sources
        self._project = project_source

    def load(self, is_repl: bool = True) -> LoadedPrompt:
        """Return the prompt as the sources have it now; an empty file counts as one that there is.

        Raises:
            PromptError: A file is there and can't be used.
        """
        personal, personal_path = _first(_usual() if self._personal is None else self._personal)
        project, project_path = _first([self._project or FilePromptSource(Path(PROMPT_FILE))])
        return LoadedPrompt(
            content=joined_prompt(personal, project, get_system_info(is_repl)),
            personal_path=personal_path,
            project_path=project_path,
        )


def personal_folder() -> Path | None:
    """Return where people keep their own files; None for somebody without a home."""
    try:
        return Path("~", PERSONAL_FOLDER).expanduser()
    except RuntimeError:
        return None


def _usual() -> list[PromptSource]:
    folder = personal_folder()
    own = [FilePromptSource(folder / PROMPT_FILE)] if folder else []
    return [*own, FilePromptSource(DEFAULT_PROMPT)]


def _first(sources: Sequence[PromptSource]) -> tuple[str, Path | None]:
    for source in sources:
        text = source.load()
        if text is not None:
            return text, source.path
    return "", None
