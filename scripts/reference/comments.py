"""What comments say of settings: those of config.example.yml, and those of the models."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import Final

from pydantic import BaseModel

_KEY: Final = re.compile(r"^( *)(\w+):(?: |$)")
_COMMENT: Final = re.compile(r"^ *# ?(.*)$")
#: A line of an example in a comment.
_INDENTED: Final = "  "


def of_example(example: str) -> dict[tuple[str, ...], str]:
    """Return the comment above each key of a YAML file, as Markdown.

    A key directly below another of its section, without a comment of its own, shares the other's.
    """
    found: dict[tuple[str, ...], str] = {}
    path: tuple[str, ...] = ()
    said: list[str] = []
    for line in example.splitlines():
        if comment := _COMMENT.match(line):
            said.append(comment[1])
            continue
        if key := _KEY.match(line):
            above, path = path, (*path[: len(key[1]) // 2], key[2])
            shared = found.get(above, "") if above[:-1] == path[:-1] else ""
            found[path] = "\n\n".join(_paragraphs(said)) if said else shared
        said = []
    return found


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Yield what a comment says, and its examples as blocks of code."""
    for is_example, part in groupby(lines, key=lambda line: line.startswith(_INDENTED)):
        if is_example:
            code = textwrap.dedent("\n".join(part))
            yield f"```yaml\n{code}\n```"
        else:
            text = " ".join(part).replace("*", r"\*")
            yield re.sub(r"\bdocs/([a-z-]+\.md)\b", r"[\1](\1)", text)


def of_model(model: type[BaseModel]) -> dict[str, str]:
    """Return what the comments ``#:`` above a model's fields say."""
    source = textwrap.dedent(inspect.getsource(model))
    lines = source.splitlines()
    return {
        node.target.id: _above(lines[: node.lineno - 1])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _above(lines: Sequence[str]) -> str:
    stripped = (line.strip() for line in reversed(lines))
    said = [line[3:] for line in takewhile(lambda line: line.startswith("#: "), stripped)]
    return " ".join(reversed(said)).replace("``", "`").replace("None", "`null`")
