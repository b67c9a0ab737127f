"""``ctxb healthcheck``: check by its heartbeat file that a worker still reads requests.

A probe runs every few seconds, so this imports nothing of the service.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Final

FILE_VARIABLE: Final = "CTXB_WORKER__HEARTBEAT_FILE"
ENV_FILE_VARIABLE: Final = "CTXB_ENV_FILE"

#: Seconds. A worker touches the file twice a second, and every few seconds while its bus is away.
MAX_AGE: Final = 30.0

HEALTHY: Final = 0
UNHEALTHY: Final = 1


def probe(arguments: Sequence[str]) -> int:
    """Return 0 if the worker is alive, else 1 with the cause on stderr."""
    options = _parser().parse_args(arguments)
    try:
        file = options.file or _configured_file()
        if not file:
            return _unhealthy(f"no heartbeat file: give --file, or set {FILE_VARIABLE}")
        age = time.time() - Path(file).stat().st_mtime
    except OSError as error:
        return _unhealthy(f"{error.filename}: {error.strerror}")
    if age > options.max_age:
        return _unhealthy(f"{file}: last heartbeat {age:.0f} s ago")
    return HEALTHY


def _configured_file() -> str:
    """Return the file set by a variable, or an empty text; ``null`` is no file, as in settings."""
    file = os.environ.get(FILE_VARIABLE) or _read_env_file()
    return "" if file == "null" else file


def _read_env_file() -> str:
    """Return the variable's value in the .env file, or an empty text; raises `OSError`."""
    chosen = os.environ.get(ENV_FILE_VARIABLE)
    path = Path(chosen or ".env")
    if not chosen and not path.is_file():
        return ""
    from dotenv import dotenv_values  # noqa: PLC0415 - takes as long as all else here

    text = path.read_text(encoding="utf-8-sig", errors="replace")
    return dotenv_values(stream=StringIO(text)).get(FILE_VARIABLE) or ""


def _unhealthy(cause: str) -> int:
    sys.stderr.write(f"unhealthy: {cause}\n")
    return UNHEALTHY


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ctxb healthcheck",
        description=(
            "Exit with 0 if the worker has read requests lately, else with 1."
            " config.yml is not read: if it sets worker.heartbeat_file, give --file."
        ),
        epilog="example: ctxb healthcheck --file /run/ctxb/heartbeat --max-age 20",
    )
    parser.add_argument(
        "--file",
        help=(
            f"the file that the worker touches (default: {FILE_VARIABLE} of the environment,"
            f" else of the .env file, which {ENV_FILE_VARIABLE} may name)"
        ),
    )
    parser.add_argument(
        "--max-age",
        type=float,
        default=MAX_AGE,
        metavar="SECONDS",
        help="age of the file above which the worker counts as stuck (default: %(default)g)",
    )
    return parser
