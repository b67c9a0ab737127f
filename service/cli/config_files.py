"""Files of settings that are written for somebody, and take no other's place."""

from collections.abc import Mapping
from pathlib import Path

import typer

from service.cli.exits import Exit, tell


def write_new(files: Mapping[Path, str]) -> None:
    """Write all files, or none where one is there already; raises `typer.Exit`."""
    if there := [path for path in files if path.exists()]:
        _refuse(f"{', '.join(map(str, there))} is there already, and is not overwritten")
    for path, text in files.items():
        try:
            # of two that write at the same time, the second is refused
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            _refuse(f"{path}: {error.strerror}")


def _refuse(why: str) -> None:
    tell("not written", why)
    raise typer.Exit(Exit.FAILED)
