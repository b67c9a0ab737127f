"""PromptLoader: a personal prompt, a project's, and facts about the machine, as one prompt."""

import os
import platform
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from prompts.environment import SystemFacts, format_environment
from prompts.layers import LoadedPrompt, join_prompts
from service.errors import InvalidRequestError, PromptError
from service.wire.payload import clean_json, read_json


def system_facts() -> SystemFacts:
    """Return the facts about this process and the machine below it; what is not known is empty."""
    return SystemFacts(
        working_directory=_working_directory(),
        system=platform.system(),
        release=platform.release(),
        distribution=_distribution(),
        macos=platform.mac_ver()[0],
        terminal_program=os.environ.get("TERM_PROGRAM", ""),
        terminal=os.environ.get("TERM", ""),
    )


def get_system_info(is_repl: bool = True, *, facts: SystemFacts | None = None) -> str:
    """Return the `# Environment` section; of this machine, where no facts are given."""
    return format_environment(facts or system_facts(), is_repl=is_repl)


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


#: Bytes of the largest file that is read: far more than any model's context holds.
MAX_FILE_BYTES: Final = 1_048_576


def read_text(path: Path) -> str | None:
    """Return what a file holds, with plain line ends; None where there is no file.

    Raises:
        PromptError: It is too large, no file, no UTF-8 or can't be read.
    """
    content = _content(path)
    if content is None:
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: no UTF-8 at byte {error.start}") from error
    return text.replace("\r\n", "\n")


def read_object(path: Path) -> Mapping[str, object] | None:
    """Return the JSON object that a file holds; None where there is no file, or a blank one.

    Raises:
        PromptError: As `read_text`, or it holds something else.
    """
    text = read_text(path)
    if text is None or not text.strip():
        return None
    try:
        return cast("Mapping[str, object]", clean_json(read_json(text.encode())))
    except InvalidRequestError as error:
        raise PromptError(f"{path}: {error.detail}") from error


def _content(path: Path) -> bytes | None:
    try:
        # looked at first: opening a pipe would wait for somebody to write to it
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise PromptError(f"{path}: is no file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        if isinstance(error, PromptError):
            raise
        raise PromptError(f"{path}: cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise PromptError(f"{path}: has more than {MAX_FILE_BYTES} bytes")
    return content


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
            content=join_prompts(personal, project, get_system_info(is_repl)),
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
