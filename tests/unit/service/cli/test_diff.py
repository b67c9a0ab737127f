"""``ctxb diff``, in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from service.cli.diff import _reported_texts
from service.cli.exits import Exit
from service.config.load import load_settings

Ctxb = Callable[..., Result]


@pytest.fixture
def request_file() -> str:
    """Write a request whose history doesn't fit into a small budget; returns the file's name."""
    past = [
        {
            "id": f"m{n}",
            "run_id": f"r{n // 2}",
            "role": "assistant" if n % 2 else "user",
            "content": f"About boat number {n}. " * 9,
            "timestamp": f"2025-12-09T10:{n:02}:00Z",
        }
        for n in range(20)
    ]
    content = {"current_input": "Which boat?", "context": {"past": past, "memory_limit": None}}
    Path("r.json").write_text(json.dumps({"owner_key": "ana", "content": content}))
    return "r.json"


def response(ctxb: Ctxb, name: str, *arguments: str) -> str:
    """Write a response to a file, and return its name."""
    built = ctxb("build", "--owner", "ana", "--input", "Hi", "--json", *arguments)
    Path(name).write_text(built.stdout)
    return name


def test_the_same_response_is_identical(ctxb: Ctxb) -> None:
    """A response compared with itself, once from stdin, exits with 0."""
    name = response(ctxb, "a.json")
    result = ctxb("diff", name, "-", stdin=Path(name).read_text())
    assert result.exit_code == Exit.OK
    assert "identical: both send the same messages and tools" in result.stdout


def test_two_budgets_report_what_the_smaller_left_out(ctxb: Ctxb, request_file: str) -> None:
    """Settings, tokens and the history's outcomes are shown; the exit code reports differences."""
    budgets = ("--max-tokens", "8000", "--max-tokens", "3000")
    result = ctxb("diff", "--request", request_file, *budgets, "--text")
    assert result.exit_code == Exit.DIFFERENT
    for part in (
        "budget: 8000 in A, 3000 in B",
        "SHARED_MEMORY",
        "B: with all newer turns",
        "About boat number 0. A",
        "message 3 in A, 3 in B, [SHARED_MEMORY]",
        "-[SHARED_MEMORY count=20]",
    ):
        assert part in result.stdout


def test_the_comparison_is_one_json_document(ctxb: Ctxb, request_file: str) -> None:
    """With --json the documented keys are printed; an option given once holds for both."""
    options = ["--strategy", "oldest_first", "--strategy", "middle_out", "--max-tokens", "3000"]
    result = ctxb(
        "diff", "--request", "-", *options, "--json", stdin=Path(request_file).read_text()
    )
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == Exit.DIFFERENT
    assert set(found) == {
        *("identical", "a", "b", "settings", "outcomes", "tokens", "tools", "explained"),
        *("history", "messages", "warnings_a", "warnings_b"),
    }
    fates = {each["message_id"]: (each["a"], each["b"]) for each in found["history"]}
    assert [side["decision"] for side in fates["m0"]] == ["dropped", "kept"]
    assert found["settings"] == [{"name": "strategy", "a": "oldest_first", "b": "middle_out"}]


def test_two_models_and_two_memories(ctxb: Ctxb, request_file: str) -> None:
    """Any of the options may differ; where the same comes of both, they are identical."""
    models = ("--model", "gpt-5", "--model", "gpt-4")
    result = ctxb("diff", "--request", request_file, *models)
    assert result.exit_code == Exit.OK
    assert "model: gpt-5 in A, gpt-4 in B" in result.stdout
    tokens = ("--memory-tokens", "64", "--memory-tokens", "900")
    assert ctxb("diff", "--request", request_file, *tokens).exit_code == Exit.DIFFERENT


def test_without_decisions_it_says_how_to_get_them(ctxb: Ctxb, request_file: str) -> None:
    """Two files of builds that weren't explained leave the history out."""
    names = []
    for budget in ("8000", "3000"):
        built = ctxb("build", "--request", request_file, "--max-tokens", budget, "--json")
        Path(f"{budget}.json").write_text(built.stdout)
        names.append(f"{budget}.json")
    result = ctxb("diff", *names)
    assert result.exit_code == Exit.DIFFERENT
    assert "build with --explain" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.json"], "two builds or responses are needed"),
        ([], "two builds or responses are needed"),
        (["-", "-"], "only one of them"),
        (["a.json", "a.json", "--model", "m"], "go with"),
        (["missing.json", "a.json"], "No such file"),
        (["a.json", "a.json", "--request", "r.json"], "either"),
        (["--request", "r.json", "--strategy", "none"], "needed twice"),
        (["--request", "r.json", *(["--model", "m"] * 3)], "needed twice"),
    ],
)
def test_wrong_usage_is_reported(
    arguments: list[str], said: str, ctxb: Ctxb, request_file: str
) -> None:
    """Two builds have to be named, in one way or the other."""
    response(ctxb, "a.json")
    result = ctxb("diff", *arguments)
    assert result.exit_code == Exit.USAGE
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_only_contexts_can_be_compared(ctxb: Ctxb) -> None:
    """An error, or a file with other content, is no build."""
    good, bad = response(ctxb, "a.json"), response(ctxb, "e.json", "--max-tokens", "500")
    result = ctxb("diff", good, bad)
    assert result.exit_code == Exit.FAILED
    assert "e.json: an error, no context" in result.stderr
    Path("x.json").write_text("{}")
    result = ctxb("diff", "x.json", good)
    assert result.exit_code == Exit.FAILED
    assert "x.json: no response: /id is required\n" in result.stderr


@pytest.mark.parametrize("content", [{"current_input": "hi"}, {"history": [{"content": "hi"}]}])
def test_a_request_in_place_of_a_response_is_told_its_option(
    content: dict[str, object], ctxb: Ctxb
) -> None:
    """Of a file that is neither, the error names what is missing."""
    Path("r.json").write_text(json.dumps({"id": "q", "owner_key": "o", "content": content}))
    result = ctxb("diff", "r.json", "r.json")
    assert result.exit_code == Exit.FAILED
    assert "no response: /run_id is required; pass a request with --request\n" in result.stderr


def test_tools_and_warnings_are_compared(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines name the tools that were added and the warnings that one side has."""
    first = response(ctxb, "a.json")
    Path("t.json").write_text(json.dumps([{"type": "function", "function": {"name": "look"}}]))
    monkeypatch.setenv("CTXB_TOOLS__PATHS", '["t.json"]')
    second = response(ctxb, "b.json", "--model", "unheard-of")
    result = ctxb("diff", first, second)
    assert "tool added: look" in result.stdout
    assert "warning in B only: unknown_model" in result.stdout


def test_words_of_a_request_are_read_whatever_its_size() -> None:
    """What a worker received in UTF-8 may exceed its limit once other letters are escaped."""
    past = [{"id": f"m{n}", "role": "user", "content": "字" * 90_000} for n in range(9)]
    body = {"owner_key": "ana", "content": {"current_input": "Hi", "context": {"past": past}}}
    report: Any = SimpleNamespace(request=SimpleNamespace(owner_key="ana", body=body))
    comparison: Any = SimpleNamespace(history=[])

    texts = _reported_texts(load_settings(None), report, comparison)

    assert texts.keys() == {row["id"] for row in past}
