"""Read small files of text and JSON; what can't be used is a clear error with its path."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from service.errors import InvalidRequestError, PromptError
from service.payload import cleaned, read_json

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
        return cast("Mapping[str, object]", cleaned(read_json(text.encode())))
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
