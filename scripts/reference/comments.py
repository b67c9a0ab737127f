"""Read the comments on settings, in config.example.yml and on the models' fields."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import Final

from pydantic import BaseModel

#: The start of a line of an example in a comment.
_INDENTED: Final = "  "


def to_markdown(comment: str) -> str:
    """Return a comment as Markdown, with its examples as code blocks."""
    return "\n\n".join(_paragraphs(comment.splitlines()))


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    for is_example, part in groupby(lines, key=lambda line: line.startswith(_INDENTED)):
        if is_example:
            code = textwrap.dedent("\n".join(part))
            yield f"```yaml\n{code}\n```"
        else:
            text = " ".join(part).replace("*", r"\*")
            yield re.sub(r"\bdocs/([a-z-]+\.md)\b", r"[\1](\1)", text)


def field_comments(model: type[BaseModel]) -> dict[str, str]:
    """Return the comments ``#:`` above a model's fields, by field."""
    source = textwrap.dedent(inspect.getsource(model))
    lines = source.splitlines()
    return {
        node.target.id: _above(lines[: node.lineno - 1])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _above(lines: Sequence[str]) -> str:
    stripped = (line.strip() for line in reversed(lines))
    comment = [line[3:] for line in takewhile(lambda line: line.startswith("#: "), stripped)]
    return " ".join(reversed(comment)).replace("``", "`").replace("None", "`null`")
