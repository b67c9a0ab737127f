"""`ctxb recall`, on a store in a file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from formatters.handles import make_handle
from service.cli.exits import Exit

Ctxb = Callable[..., Result]


@pytest.fixture
def ctxb_with_rows(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> Ctxb:
    """Give the command, with a store of a few rows."""
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///ctxb.db")
    rows = [
        {"id": f"m{n}", "role": ("user", "assistant")[n % 2], "content": f"Line {n}\nof soup"}
        for n in range(9)
    ]
    Path("rows.json").write_text(json.dumps(rows))
    assert ctxb("history", "import", "rows.json", "--owner", "ana").exit_code == Exit.OK
    return ctxb


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--query", "soup", "--with-ids"], "012345678"),
        (["--id", "m3", "--id", make_handle("m1")], "13"),
        (["--around", "m4", "--before", "1", "--after", "2"], "3456"),
        (["--grep", "LINE 7"], "7"),
        (["--grep", "line", "--older-than", "m2"], "01"),
    ],
)
def test_messages_are_printed(ctxb_with_rows: Ctxb, options: list[str], shown: str) -> None:
    """As the model reads them."""
    result = ctxb_with_rows("recall", "--owner", "ana", *options)

    assert result.exit_code == Exit.OK
    assert result.stdout.startswith(f"[RECALLED count={len(shown)}]\n")
    for number in range(9):
        assert (f"[{make_handle(f'm{number}')}]: Line {number}" in result.stdout) == (
            str(number) in shown
        )


def test_lines_of_one_message_are_printed(ctxb_with_rows: Ctxb) -> None:
    """A range that is none says how one is written."""
    result = ctxb_with_rows("recall", "-o", "ana", "--id", "m1", "--lines", "2-2", "--json")
    assert json.loads(result.stdout)["content"]["messages"][0]["lines"] == [2, 2]
    for wrong in ("2", "a-b", "1-2-3"):
        result = ctxb_with_rows("recall", "-o", "ana", "--id", "m1", "--lines", wrong)
        assert result.exit_code == Exit.USAGE
        assert "is no range of lines" in result.stderr


def test_an_owner_without_rows_is_reported(ctxb_with_rows: Ctxb) -> None:
    """On stderr; one who has rows, none of which is found, isn't."""
    unknown = ctxb_with_rows("recall", "-o", "anna", "-q", "soup")
    assert unknown.exit_code == Exit.OK
    assert unknown.stdout.endswith("(No messages)\n")
    assert unknown.stderr == "note: the store has no such rows of this owner\n"
    assert ctxb_with_rows("recall", "-o", "ana", "--grep", "rice").stderr == ""


def test_what_is_wrong_is_said_on_stderr(ctxb_with_rows: Ctxb) -> None:
    """Unknown ids as warnings, errors by their exit codes; both name the option."""
    unknown = ctxb_with_rows("recall", "-o", "ana", "--id", "nobody")
    assert unknown.exit_code == Exit.OK
    assert unknown.stderr == "warning: no message has the id 'nobody' (--id)\n"

    around = ctxb_with_rows("recall", "-o", "ana", "--around", "nobody", "--json")
    assert around.exit_code == Exit.FAILED
    assert json.loads(around.stdout)["content"]["status"] == "error"
    assert "--around: no message has the id" in around.stderr
    small = ctxb_with_rows("recall", "-o", "ana", "-q", "soup", "--max-tokens", "3")
    assert small.exit_code == Exit.USAGE
    assert "--max-tokens: " in small.stderr
    for result in (unknown, around, small):
        assert "/content" not in result.stderr
    nothing = ctxb_with_rows("recall", "-o", "ana")
    two = ctxb_with_rows("recall", "-o", "ana", "--grep", "soup", "--query", "soup")
    for result in (nothing, two):
        assert result.exit_code == Exit.USAGE
        assert "exactly one of --query, --id, --around and --grep" in result.stderr


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        (("--id", "m1", "--before", "2"), "around"),
        (("--query", "soup", "--after", "0"), "around"),
        (("--grep", "soup", "--page", "2"), "query"),
        (("--around", "m1", "--with-ids"), "query"),
        (("--query", "soup", "--older-than", "m1"), "grep"),
    ],
)
def test_an_option_without_its_way_is_refused(
    ctxb_with_rows: Ctxb, options: tuple[str, ...], mode: str
) -> None:
    """It would do nothing."""
    result = ctxb_with_rows("recall", "-o", "ana", *options)

    assert result.exit_code == Exit.USAGE
    assert f"applies with --{mode} only" in result.stderr


def test_a_build_is_excluded_on_a_bus_only(ctxb_with_rows: Ctxb) -> None:
    """Its report exists."""
    result = ctxb_with_rows("recall", "-o", "ana", "-q", "soup", "--exclude-build", "bld_1")
    assert result.exit_code == Exit.CONFIGURATION
    assert "bus" in result.stderr


def test_a_store_in_memory_has_nothing_to_recall(ctxb: Ctxb) -> None:
    """It would be this command's own: the command refuses, as those of `ctxb history` do."""
    result = ctxb("recall", "-o", "ana", "-q", "soup")
    assert result.exit_code == Exit.CONFIGURATION
    assert "the store is in memory" in result.stderr
