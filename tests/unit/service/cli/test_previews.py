"""The words of messages for tables."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli.exits import Exit
from service.cli.previews import find_texts
from service.config.load import load_settings

Ctxb = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "shown"), [('{"to": "FRA"}', "f(…)"), ("{}", "f()"), ("{broken", "f(…)")]
)
def test_a_call_shows_whether_it_has_arguments(arguments: str, shown: str) -> None:
    """A mark stands for them: they may be long."""
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": "c", "type": "function", "function": function}]
    rows = [{"id": "m1", "role": "assistant", "content": "", "tool_calls": calls}]
    assert find_texts(load_settings(None), "ana", ["m1"], rows) == {"m1": shown}


def test_a_store_that_cannot_be_read_has_no_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In memory, or without its tables, which nobody asked to make: ids are shown alone."""
    monkeypatch.chdir(tmp_path)
    assert find_texts(load_settings(None), "ana", ["m1"], None) == {}
    for url in ("sqlite:///no/such/folder/ctxb.db", "mysql://host/ctxb", "sqlite:///new.db"):
        monkeypatch.setenv("CTXB_STORE__URL", url)
        assert find_texts(load_settings(None), "ana", ["m1"], None) == {}
    assert not [*tmp_path.iterdir()]


def test_an_explanation_shows_the_words_of_stored_rows(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it shows those of rows that the request brought."""
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///ctxb.db")
    rows = [{"id": f"m{n}", "role": "user", "content": f"Line {n} of soup"} for n in range(9)]
    Path("rows.json").write_text(json.dumps(rows))
    assert ctxb("history", "import", "rows.json", "--owner", "ana").exit_code == Exit.OK
    result = ctxb("build", "--owner", "ana", "--input", "Hi", "--explain")
    decisions = result.stdout.partition("Decisions")[2]
    assert "Line 0 of soup" in decisions
    assert "… Line 8 of soup" in decisions
