"""The file with an embedded server's address, which other processes in its folder read.

The URL has the server's password. So the file is its owner's alone, and is neither read nor written
where another user could have put it: through a link, or in a folder that others may write to.
"""

import asyncio
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

#: The folder, in the working directory.
FOLDER: Final = Path(".ctxb")
#: The file with the URL.
ADDRESS: Final = FOLDER / "bus.url"
#: Held while a process finds out whether the server runs, and starts one otherwise.
_LOCK: Final = "lock"
#: Seconds to wait for the lock: longer than a server may take to start.
LOCK_SECONDS: Final = 60.0
#: Seconds between attempts to take it.
LOCK_INTERVAL: Final = 0.05

#: Matches exactly what `service.adapters.embedded.server` writes.
_URL: Final = re.compile(r"redis://default:[\w-]+@127\.0\.0\.1:\d+/0\n?")
_MAX_BYTES: Final = 1_000
#: Permissions of others that a file, or its folder, may not have.
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITE_OF_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def read_address() -> str | None:
    """Return the URL; None if there is no file. Raises `OSError` if it can't be trusted."""
    if sys.platform == "win32":  # nothing is embedded there
        return None
    try:
        with _open_folder() as folder:
            return _read(folder)
    except FileNotFoundError:
        return None


def write_address(url: str) -> None:
    """Replace the URL, with the lock held; raises `OSError`."""
    temporary = f"{ADDRESS.name}.new"
    with _open_folder() as folder:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        _create(temporary, f"{url}\n", folder)
        os.rename(temporary, ADDRESS.name, src_dir_fd=folder, dst_dir_fd=folder)


def remove_address(url: str) -> None:
    """Remove the file if it has this URL, and nothing if it can't be read."""
    with suppress(OSError), _open_folder() as folder:
        if _read(folder) == url:
            os.unlink(ADDRESS.name, dir_fd=folder)


@asynccontextmanager
async def locked_address() -> AsyncIterator[None]:
    """Make the folder, and hold its lock; raises `OSError`, such as `TimeoutError`."""
    import fcntl  # noqa: PLC0415 - Windows has none, and embeds nothing

    FOLDER.mkdir(mode=0o700, exist_ok=True)
    with _open_folder() as folder:
        with suppress(FileExistsError):
            _create(".gitignore", "*\n", folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(_LOCK, flags, 0o600, dir_fd=folder)) as lock:
            async with asyncio.timeout(LOCK_SECONDS):
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(LOCK_INTERVAL)
            yield


@contextmanager
def _open_folder() -> Iterator[int]:
    """Open the folder, so that it can't be exchanged meanwhile; raises `OSError`."""
    folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _require_own(folder, FOLDER, _WRITE_OF_OTHERS)
        yield folder
    finally:
        os.close(folder)


def _read(folder: int) -> str:
    # a pipe would be waited for
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(ADDRESS.name, flags, dir_fd=folder), "rb") as file:
        _require_own(file.fileno(), ADDRESS, _OF_OTHERS)
        text = file.read(_MAX_BYTES).decode("ascii", errors="replace")
    if not _URL.fullmatch(text):
        raise OSError(f"{ADDRESS} has no address of an embedded server")
    return text.strip()


def _create(name: str, text: str, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "w") as file:
        file.write(text)


def _require_own(file: int, path: Path, forbidden: int) -> None:
    status = os.fstat(file)
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise PermissionError(f"{path} is open to other users")
