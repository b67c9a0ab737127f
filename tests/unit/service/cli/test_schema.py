"""``ctxb schema``: the contract on stdout."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from typer.testing import Result

from scripts.wire_documents import documents
from service.cli.exits import Exit
from service.wire.documents import schemas

Ctxb = Callable[..., Result]

ROOT = Path(__file__).parents[4]

#: Ours or others', and of no use for printing a document; `scripts` isn't installed at all.
HEAVY = {
    *("redis", "sqlalchemy", "tiktoken", "openai", "starlette", "mcp", "service.adapters"),
    "scripts",
}


#: The documents, which take a while to make.
made = cache(documents)


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("asyncapi",), "asyncapi"),
        (("errors",), "errors"),
        (("json", "request"), "request"),
        (("json", "context_pruned"), "context_pruned"),
    ],
)
def test_what_is_printed_is_the_file(arguments: tuple[str, ...], file: str, ctxb: Ctxb) -> None:
    """Byte for byte that of docs/schemas."""
    result = ctxb("schema", *arguments)
    assert result.exit_code == Exit.OK
    assert result.stdout == made()[f"schemas/{file}.json"]


def test_all_schemas_are_printed_by_their_names(ctxb: Ctxb) -> None:
    """Without a name, as one object."""
    assert json.loads(ctxb("schema", "json").stdout) == schemas()


def test_an_unknown_message_is_reported(ctxb: Ctxb) -> None:
    """With the names that there are, and nothing on stdout."""
    result = ctxb("schema", "json", "letter")
    assert result.exit_code == Exit.FAILED
    assert result.stdout == ""
    assert "request, response" in result.stderr


def test_nothing_heavy_is_loaded() -> None:
    """No driver, tokenizer or server is needed to print a document."""
    script = (
        "import sys; from service.cli import main\n"
        "sys.argv = ['ctxb', 'schema', 'asyncapi']\n"
        "try: main()\n"
        "finally: print('\\0', *sys.modules)"
    )
    ran = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    printed, loaded = ran.stdout.split("\0")

    assert json.loads(printed)["asyncapi"] == "3.0.0"
    assert HEAVY.isdisjoint(loaded.split())
