"""Reads files of prompts and tools: regular ones, which no link moves out of their folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from service.errors import InvalidRequestError, PromptError
from service.wire.payload import clean_json, read_json

#: The largest file that is read, far more than any model's context holds.
MAX_FILE_BYTES: Final = 1_048_576
#: The folder of a user's or project's own files.
PERSONAL_FOLDER: Final = ".nexus3"


def personal_folder() -> Path | None:
    """Return the folder of the user's own files; None for a user without a home."""
    try:
        return Path("~", PERSONAL_FOLDER).expanduser()
    except RuntimeError:
        return None


def read_regular(path: Path, folder: Path | None = None, *, limit: int = -1) -> bytes:
    """Return the content of a regular file, or its first ``limit`` bytes.

    If ``folder`` is given, links may lead to files in it only: a file of a folder that others
    write must not show files that they can't read, such as the environment of this process.

    Raises:
        OSError: A link leads out of the folder, or it is not a regular file, or cannot be read.
    """
    try:
        real = path.resolve(strict=True)
    except RuntimeError as error:  # links in a circle, up to Python 3.12
        raise OSError(str(error)) from error
    if folder is not None and not real.is_relative_to(folder.resolve()):
        raise PermissionError(f"a link leads out of {folder}")
    if not real.is_file():  # a pipe is not opened: that would wait for its writer
        raise OSError("not a regular file")
    with real.open("rb") as file:
        return file.read(limit)


def read_text(path: Path, folder: Path | None = None) -> str | None:
    """Return the text of a file, with Unix line ends; None if it doesn't exist.

    Raises:
        PromptError: It is too large, not a regular file or not UTF-8, a link leads out of the
            folder, or it cannot be read.
    """
    try:
        content = read_regular(path, folder, limit=MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise PromptError(f"{path}: cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise PromptError(f"{path}: has more than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: is not UTF-8 at byte {error.start}") from error


def read_object(path: Path, folder: Path | None = None) -> Mapping[str, object] | None:
    """Return the JSON object in a file; None if the file doesn't exist or is blank.

    Raises:
        PromptError: As for `read_text`, or the content is not a JSON object.
    """
    text = read_text(path, folder)
    if text is None or not text.strip():
        return None
    try:
        return cast("Mapping[str, object]", clean_json(read_json(text.encode())))
    except InvalidRequestError as error:
        raise PromptError(f"{path}: {error.detail}") from error
