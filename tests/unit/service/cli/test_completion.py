"""What shells complete."""

from collections.abc import Callable

import pytest
from typer.testing import Result

from service.cli.models import complete_model
from service.cli.request import complete_strategy


def test_names_are_completed_by_their_beginning() -> None:
    """Of strategies and models; what begins otherwise is none of them."""
    assert complete_strategy("slid") == ["sliding_window"]
    assert "relevance" in complete_strategy("")
    assert all(name.startswith("gpt-5") for name in complete_model("gpt-5"))
    assert complete_model("gpt-5") == sorted(complete_model("gpt-5"))
    assert complete_model("no such model") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ctxb build --strategy slid", "sliding_window"),
        ("ctxb diff --strategy slid", "sliding_window"),
        ("ctxb doc", "doctor"),
        ("ctxb config in", "init"),
    ],
)
def test_a_shell_gets_them(
    words: str, found: str, ctxb: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, their own commands, and the values of their options."""
    monkeypatch.setenv("_CTXB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert ctxb().stdout.split() == [found]
