"""The example of all settings: as a file to begin with, and what it says of each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.config.paths import Keys

#: A copy of `config.example.yml`, since the folder above is in no package; a test compares them.
EXAMPLE: Final = Path(__file__).with_name("example.yml")

#: Stands before the example's own words on where values come from.
_HEAD: Final = """\
# Settings of context-builder. A line that begins with "#" and a letter is a setting with its
# default: take the "#" away where you change the value. All other lines with "#" are comments.
"""
#: The words of the example that say what `_HEAD` says of a file that was made of it.
_COPY_IT: Final = re.compile(r"\A# Every setting .*?shown here\.\n", re.DOTALL)

_KEY: Final = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value> .*)?")
#: Blanks by which a section is set in.
_STEP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the example that has a key, and the comment above it."""

    number: int
    keys: Keys
    #: Whether it has a value, and is no section.
    leaf: bool
    #: As its lines are written, without their signs.
    comment: str


def template() -> str:
    """Return a file of all settings in which none is set."""
    text = _example()
    lines = text.splitlines()
    for line in _lines(text):
        if line.leaf:
            indent = " " * _STEP * (len(line.keys) - 1)
            lines[line.number] = f"{indent}#{lines[line.number].lstrip()}"
    return _HEAD + _COPY_IT.sub("", "\n".join(lines) + "\n")


def comments() -> Mapping[Keys, str]:
    """Return what the example says of each setting and section, by its path, line by line.

    A setting directly below another of its section, without words of its own, shares the other's.
    """
    return {line.keys: line.comment for line in _lines(_example()) if line.comment}


def _example() -> str:
    return EXAMPLE.read_text(encoding="utf-8")


def _lines(text: str) -> Iterator[_Line]:
    said: list[str] = []
    path: list[str] = []
    above: _Line | None = None
    for number, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("#"):
            said.append(line.lstrip().removeprefix("#").removeprefix(" "))
            continue
        if found := _KEY.fullmatch(line):
            path[len(found["indent"]) // _STEP :] = [found["key"]]
            above = _Line(
                number=number,
                keys=tuple(path),
                leaf=found["value"] is not None,
                comment="\n".join(said) or _shared(above, path),
            )
            yield above
        else:
            above = None
        said = []


def _shared(above: _Line | None, path: Sequence[str]) -> str:
    """Return what the line above says, where it is of a setting beside this one."""
    beside = above is not None and above.leaf and list(above.keys[:-1]) == path[:-1]
    return above.comment if above is not None and beside else ""
