"""What benches are run on: the machine, the versions, the commit."""

import os
import platform
import sqlite3
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from service.adapters.embedded.binaries import find_server

ROOT: Final = Path(__file__).parents[2]
#: Packages that most of the time is spent in.
PACKAGES: Final = ("pydantic", "tiktoken", "PyStemmer", "redis", "hiredis", "uvloop", "SQLAlchemy")


def described() -> str:
    """Return processor, cores, memory and system, and the versions of what is measured with."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    machine = f"{_processor()}, {os.cpu_count()} cores, {gigabytes:.0f} GB, {system}"
    return f"{machine}: {', '.join(_versions())}"


def tree() -> str:
    """Return which commit is measured, with a mark where other files than documents differ."""
    changed = _said("git", "status", "--porcelain", "--", ".", ":!docs")
    return _said("git", "rev-parse", "--short", "HEAD") + (" and changes" if changed else "")


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"
    yield f"SQLite {sqlite3.sqlite_version}"
    yield from filter(None, (_bus_server(), _postgres()))


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _bus_server() -> str:
    server = find_server()
    words = _said(str(server.path), "--version").split() if server else []
    return f"{server.path.name} {words[2].removeprefix('v=')}" if server and words else ""


def _postgres() -> str:
    if find_spec("asyncpg") is None:
        return ""
    from tests.postgres_server import find_postgres

    found = find_postgres()
    return _said(str(found.folder / "postgres"), "--version") if found else ""


def _said(*words: str) -> str:
    """Return the first line that a command prints; empty where it can't be run."""
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - no stranger writes these words
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.partition("\n")[0].strip()
