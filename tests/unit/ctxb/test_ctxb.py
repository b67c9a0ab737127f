"""The public package has each name once, typed and described, and imports nothing beforehand."""

import ast
import inspect
from importlib import metadata
from pathlib import Path

import pytest

import ctxb
from ctxb import strategies

FACE = ast.parse(Path(ctxb.__file__).read_text(encoding="utf-8"))


def imported(nodes: list[ast.stmt]) -> dict[str, str | None]:
    """Return the names that statements import from modules, and the module of each."""
    statements = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in statements for alias in node.names}


def test_type_checkers_see_what_python_finds() -> None:
    """The section for them has the names of the table, from the same modules."""
    (section,) = (
        node.body
        for node in FACE.body
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.test, ast.Name)
    )
    table = {name: module for module, names in ctxb.NAMES.items() for name in names.split()}

    assert imported(section) == {**table, "strategies": "ctxb"}
    assert sorted(ctxb.__all__) == sorted({*table, "strategies"}) == dir(ctxb)


def test_nothing_is_imported_before_it_is_used() -> None:
    """The package itself needs two modules of the standard library."""
    assert set(imported(FACE.body).values()) == {"importlib", "typing"}


@pytest.mark.parametrize("name", ctxb.__all__)
def test_a_public_name_is_there_and_described(name: str) -> None:
    """A class or function has a docstring of its own."""
    value = getattr(ctxb, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert value.__doc__


def test_the_version_is_that_of_the_package() -> None:
    """Under the name that Python packages have for it."""
    assert ctxb.__version__ == metadata.version("ctxb")


@pytest.mark.parametrize("name", strategies.__all__)
def test_what_strategies_are_made_of_is_there(name: str) -> None:
    """So that a strategy of one's own needs no other module."""
    assert getattr(strategies, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module; Python looks for the name that was meant in the error's object."""
    with pytest.raises(AttributeError, match="'ctxb' has no attribute 'ContextManger'") as raised:
        _ = ctxb.ContextManger  # type: ignore[attr-defined]
    assert (raised.value.name, raised.value.obj) == ("ContextManger", ctxb)
