"""Reads prompt and configuration files, of a bounded size."""

import stat
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


def read_text(path: Path) -> str | None:
    """Return the text of a file, with Unix line ends; None if it doesn't exist.

    Raises:
        PromptError: It is too large, not a regular file or not UTF-8, or cannot be read.
    """
    content = _read_bytes(path)
    if content is None:
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: is not UTF-8 at byte {error.start}") from error
    return text.replace("\r\n", "\n")


def read_object(path: Path) -> Mapping[str, object] | None:
    """Return the JSON object in a file; None if the file doesn't exist or is blank.

    Raises:
        PromptError: As for `read_text`, or the content is not a JSON object.
    """
    text = read_text(path)
    if text is None or not text.strip():
        return None
    try:
        return cast("Mapping[str, object]", clean_json(read_json(text.encode())))
    except InvalidRequestError as error:
        raise PromptError(f"{path}: {error.detail}") from error


def _read_bytes(path: Path) -> bytes | None:
    try:
        # a pipe is not opened: that would wait for its writer
        is_regular = stat.S_ISREG(path.stat().st_mode)
        content = _read_start(path) if is_regular else b""
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise PromptError(f"{path}: cannot be read: {error}") from error
    if not is_regular:
        raise PromptError(f"{path}: is not a regular file")
    if len(content) > MAX_FILE_BYTES:
        raise PromptError(f"{path}: has more than {MAX_FILE_BYTES} bytes")
    return content


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)
