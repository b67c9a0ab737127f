"""The registry of error codes: whole, and what the errors themselves use."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from scripts.reference.errors import section
from service.errors import CLASSES, CODES, SHOWN_CHARS, ContextBuilderError, escape_key, shown
from service.http.error_responses import STATUSES
from service.wire.documents import error_registry

ROOT = Path(__file__).parents[3]


def kinds() -> Iterator[type[ContextBuilderError]]:
    """Yield every error that there is in a module that declares a code."""
    for path in sorted((ROOT / "service").rglob("*.py")):
        if "ContextBuilderError" in path.read_text(encoding="utf-8"):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    waiting: list[type[ContextBuilderError]] = [ContextBuilderError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("service."):
            yield kind


def test_every_code_has_an_entry_and_every_entry_an_error() -> None:
    """No code is missing, and every documented one is raised."""
    assert {*(kind.code for kind in kinds()), *STATUSES} == set(CODES)


def test_an_error_is_what_its_entry_says() -> None:
    """Its title and whether it is retryable are the same in the table and on the wire."""
    for kind in kinds():
        known = CODES[kind.code]
        if kind is ContextBuilderError or "code" in vars(kind):
            assert kind().title == known.title
            assert kind.retryable == known.retryable


def test_a_code_that_is_not_listed_cannot_be_given() -> None:
    """Who adds an error adds its entry."""
    with pytest.raises(KeyError, match="unheard_of"):
        type("UnheardError", (ContextBuilderError,), {}, code="unheard_of")


def test_the_client_raises_an_error_of_its_own_for_each_code() -> None:
    """On the wire, but for those that say nothing more than that something went wrong."""
    on_the_wire = {code for code, known in CODES.items() if known.on_the_wire}
    own = {code for code, kind in CLASSES.items() if kind.__module__ == "service.errors"}
    assert own >= on_the_wire - {"internal"}


def test_every_entry_says_when_and_what_to_do() -> None:
    """In sentences, on the page and in the file."""
    page = section()
    listed = {each["code"]: each for each in error_registry()["errors"]}

    assert list(listed) == list(CODES)
    assert json.loads(json.dumps(listed)) == listed
    for code, known in CODES.items():
        assert not known.title.endswith(".")
        assert known.when.endswith(".")
        assert known.remedy.endswith(".")
        for said in (f"### `{code}`", known.title, known.when, known.remedy):
            assert said in page


def test_titles_do_not_need_docstrings() -> None:
    """Under ``python -OO`` an error has the same title."""
    script = "from service.wire.response import ErrorBody; from service.errors import BusError\n"
    script += "print(ErrorBody.of(BusError('away')).title)"
    ran = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-OO", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert ran.stdout.strip() == CODES["internal"].title


def test_pointers_escape_what_they_must() -> None:
    """RFC 6901: ~ becomes ~0 and / becomes ~1."""
    assert escape_key("a/b~c") == "a~1b~0c"


def test_a_quoted_value_is_short() -> None:
    """Whatever it is made of: it is a sender's."""
    nested: object = ["x" * 999] * 9
    for _ in range(9):
        nested = [nested] * 9

    values = ("x" * 999, nested, 10**99, {"a": nested})
    assert all(len(shown(value)) <= SHOWN_CHARS for value in values)


def test_an_integer_that_python_does_not_write_has_its_size() -> None:
    """An error about a value must not become another error."""
    assert shown([-(10**5000)]) == "[<an integer of 16610 bits>]"
