"""A wheel has our packages below `ctxb`, and only imports have to change for that."""

import ast
import re
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="newer Pythons have it in builds alone")

from scripts.build_backend import MOVED, rename

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("source", "renamed"),
    [
        ("from service.app import open_builder\n", "from ctxb.service.app import open_builder\n"),
        ("from prompts import identity, layers\n", "from ctxb.prompts import identity, layers\n"),
        ("def f():\n    from formatters import rows\n", None),
        ("from service.a import (\n    b,\n)\nx = 1\n", None),
        ('"""Wörter."""; from service.a import b; from prompts.c import d\n', None),
    ],
)
def test_imports_are_renamed(source: str, renamed: str | None) -> None:
    """Wherever they are in a module, with all else as it was."""
    expected = re.sub(r"from (service|prompts|formatters)\b", r"from ctxb.\1", source)
    assert rename(source.encode()).decode() == (renamed or expected)


@pytest.mark.parametrize(
    "source",
    [
        "from services import service\n",
        "from typing import Final\n\nservice = 1\nx = service.app\n",
        "def f(prompts):\n    yield from prompts\n",
        "def f(service):\n    raise ValueError from service\n",
        '"""See `service.app`."""\nname = "service.name"\n',
    ],
)
def test_nothing_else_is_renamed(source: str) -> None:
    """Neither names of other things nor words in texts."""
    assert rename(source.encode()).decode() == source


def test_texts_are_renamed_where_they_are_modules() -> None:
    """In the table of public names, and only whole texts."""
    table = '"""Has service.app."""\nNAMES = {"service.app": "open_worker", "prompts": "a"}\n'
    renamed = table.replace('"service.app"', '"ctxb.service.app"').replace('"pro', '"ctxb.pro')
    assert rename(table.encode(), strings=True).decode() == renamed


def test_an_import_of_a_package_is_refused() -> None:
    """What follows it would have to change as well."""
    with pytest.raises(ValueError, match="line 2: import names"):
        rename(b"import os\nimport service.app\n")


@pytest.mark.parametrize("package", MOVED)
def test_no_text_names_a_module_of_ours(package: str) -> None:
    """Which wheels would have elsewhere; `prompts.identity` and the like are settings."""
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"(?:service|formatters)[\w.]*\.?", text):
                assert not (ROOT / text.replace(".", "/")).exists(), f"{path}: {text}"
                assert not (ROOT / f"{text.replace('.', '/')}.py").exists(), f"{path}: {text}"
