"""``ctxb healthcheck``: tell whether a worker still reads requests, by its heartbeat file.

The standard library alone: nothing here may import the service.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FILE_VARIABLE: Final = "CTXB_WORKER__HEARTBEAT_FILE"
ENV_FILE_VARIABLE: Final = "CTXB_ENV_FILE"

#: The one line of a .env file that matters here; its value is in one of the groups.
_ASSIGNMENT: Final = re.compile(
    rf"""^[ \t]*(?:export[ \t]+)?{FILE_VARIABLE}[ \t]*=[ \t]*"""
    r"""(?:'([^'\n]*)'|"([^"\n]*)"|([^\n]*?))[ \t]*(?:[ \t]#[^\n]*)?$""",
    re.MULTILINE,
)

#: Seconds. A worker touches the file twice a second, and every few seconds while its bus is away.
MAX_AGE: Final = 30.0

HEALTHY: Final = 0
UNHEALTHY: Final = 1


def probe(arguments: Sequence[str]) -> int:
    """Return 0 for a worker that is alive, else 1 with the cause on stderr."""
    asked = _parser().parse_args(arguments)
    try:
        file = asked.file or _configured()
        if not file:
            return _unhealthy(f"no heartbeat file: give --file, or set {FILE_VARIABLE}")
        age = time.time() - Path(file).stat().st_mtime
    except OSError as error:
        return _unhealthy(f"{error.filename}: {error.strerror}")
    if age > asked.max_age:
        return _unhealthy(f"{file}: last heartbeat {age:.0f} s ago")
    return HEALTHY


def _configured() -> str:
    """Return the file that variables name, or nothing; as in settings, ``null`` names none."""
    named = os.environ.get(FILE_VARIABLE) or _from_env_file()
    return "" if named == "null" else named


def _from_env_file() -> str:
    """Return the file that the .env file names, as written, or nothing; raises `OSError`."""
    chosen = os.environ.get(ENV_FILE_VARIABLE)
    path = Path(chosen or ".env")
    if not chosen and not path.is_file():
        return ""
    found = _ASSIGNMENT.findall(path.read_text(encoding="utf-8-sig", errors="replace"))
    return "".join(found[-1]) if found else ""


def _unhealthy(cause: str) -> int:
    sys.stderr.write(f"unhealthy: {cause}\n")
    return UNHEALTHY


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ctxb healthcheck",
        description=(
            "Exit with 0 where the worker has lately read requests, else with 1."
            " config.yml is not read: where worker.heartbeat_file stands there, give --file."
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
        help="age from which on the worker counts as stuck (default: %(default)g)",
    )
    return parser
