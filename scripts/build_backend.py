"""The build backend: setuptools, on a copy of the sources with all packages in `ctxb`.

In the repository the packages are called `service`, `formatters` and `prompts`. In a wheel they are
`ctxb.service` and so on, since many projects have packages with such names. Source distributions
and editable installs keep the names of the repository.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Final

from setuptools import build_meta
from setuptools.build_meta import build_editable, build_sdist, prepare_metadata_for_build_editable

__all__ = ["build_editable", "build_sdist", "build_wheel", "prepare_metadata_for_build_editable"]

#: The package that the others are moved into.
FACE: Final = "ctxb"
MOVED: Final = ("service", "formatters", "prompts")

_OURS: Final = re.compile(rf"(?:{'|'.join(MOVED)})(?:\.\w+)*")


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel of the project in the working directory, and return the name of its file."""
    directory = str(Path(wheel_directory).resolve())
    with TemporaryDirectory() as folder:
        copy_renamed(Path.cwd(), Path(folder))
        with chdir(folder):
            name: str = build_meta.build_wheel(directory, config_settings, metadata_directory)
    return name


def copy_renamed(project: Path, folder: Path) -> None:
    """Copy what a wheel is made of to a folder, with the names of the wheel."""
    for name in ("LICENSE", "README.md"):
        copy(project / name, folder)
    settings = (project / "pyproject.toml").read_text("utf-8")
    # the command, and the packages of data files
    renamed = settings.replace('"service.', f'"{FACE}.service.')
    (folder / "pyproject.toml").write_text(renamed, "utf-8")
    face = folder / FACE
    for source, target in {FACE: face, **{name: face / name for name in MOVED}}.items():
        copytree(project / source, target, ignore=ignore_patterns("__pycache__"))
    for path in face.rglob("*.py"):
        # the table of public names is the one place that has modules as strings
        path.write_bytes(rename(path.read_bytes(), strings=path.parent == face))


def rename(source: bytes, *, strings: bool = False) -> bytes:
    """Return a module that imports our packages from where they are in a wheel.

    With ``strings``, texts that are names of our modules are renamed too.

    Raises:
        ValueError: It has ``import service``, so that more than its imports had to change.
    """
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_places(ast.parse(source), strings=strings), reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + f"{FACE}.".encode() + text[column:]
    return b"".join(lines)


def _places(module: ast.Module, *, strings: bool) -> Iterator[tuple[int, int]]:
    """Yield line and column of each name that has to begin with that of the public package."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and _OURS.fullmatch(node.module or ""):
            yield node.lineno, node.col_offset + len("from ")
        elif isinstance(node, ast.Import):
            if any(_OURS.fullmatch(alias.name) for alias in node.names):
                raise ValueError(f"line {node.lineno}: import names from our modules, not modules")
        elif strings and isinstance(node, ast.Constant) and _OURS.fullmatch(str(node.value)):
            yield node.lineno, node.col_offset + len('"')
