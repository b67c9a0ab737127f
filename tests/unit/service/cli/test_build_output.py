"""What people are shown."""

from typing import Any

import pytest

from service.cli.build_output import (
    print_context,
    print_decisions,
    print_explanation,
    print_warnings,
)
from service.wire.response import BuildSuccess, DecisionRecord, Usage, WarningRecord


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def _decision(ids: list[str], decision: Any, reason: str, **more: Any) -> DecisionRecord:
    detail = f"{decision}: because of {reason}"
    return DecisionRecord(
        message_ids=ids, block="B", decision=decision, reason=reason, detail=detail, **more
    )


def _content(messages: list[dict[str, Any]], **more: Any) -> BuildSuccess:
    usage = Usage(
        model=None,
        tokenizer="words",
        exact=False,
        budget=3000,
        reserve=500,
        available=2500,
        total=2000,
        tools=500,
        utilization=0.8,
        cacheable_prefix=0,
        blocks={"SHARED_MEMORY": 1500},
    )
    given = {"messages": messages, "tools": [], "usage": usage, "build_id": "b", "kept": 3}
    return BuildSuccess(**{**given, "dropped": 2, **more})


def test_messages_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Long lines aren't wrapped, and brackets are no markup."""
    long = "[bold]word " * 30
    print_context(_content([{"role": "user", "content": long}]))
    assert long in capsys.readouterr().out


def test_messages_can_be_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    """Where only some lines are shown, it is said how many are not."""
    print_context(_content([{"role": "user", "content": "a\nb\nc"}]), lines=2)
    assert capsys.readouterr().out.splitlines()[1:] == ["a", "b", "… 1 more line"]


def test_calls_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A message that says nothing shows the tools it calls."""
    calls = [{"function": {"name": "f", "arguments": "{}"}}, {"custom": {}}]
    print_context(_content([{"role": "assistant", "content": None, "tool_calls": calls}]))
    assert capsys.readouterr().out.splitlines()[1:] == ["calls f({})"]


def test_tokens_that_are_not_known_are_no_zeros(capsys: pytest.CaptureFixture[str]) -> None:
    """A sum without some of its numbers is said to be the least."""
    decisions = [
        _decision(["m0"], "dropped", "score", tokens=1_200),
        _decision(["m1"], "dropped", "score"),
        _decision(["m2"], "dropped", "older"),
    ]
    print_decisions(_content([], decisions=decisions))
    lines = capsys.readouterr().out.splitlines()

    (known,) = [line for line in lines if "because of score" in line]
    (unknown,) = [line for line in lines if "because of older" in line]
    assert "at least 1,200" in known
    assert "0" not in unknown.partition("m2")[2]


def test_the_account_fits_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """The tables are readable on a narrow terminal, with the totals last."""
    decisions = [_decision([f"m{n}"], "dropped", "older", tokens=300) for n in range(3)] + [
        _decision(["an id that is much longer than a column may ever be", "y"], "kept", "fits"),
        _decision([], "not_read", "not_read", count=7),
    ]
    messages = [{"role": "user", "content": "[SHARED_MEMORY count=3]\nfirst\nsecond " * 9}]
    print_explanation(_content(messages, decisions=decisions))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "[SHARED_MEMORY count=3]   first second" in text
    assert "m0 … m2 (3)" in text
    assert "because of older" in text
    assert "900" in text
    assert "7 rows" in text
    assert "estimated with words" in text
    assert lines[-1] == "messages: kept 3, dropped 2, not read 7"


def test_messages_show_their_first_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Of neighbours the first and the last, in a line each; others only their ids."""
    decisions = [_decision([f"m{n}"], "dropped", "older " * 30) for n in range(3)]
    texts = {"m0": "The key is under\nthe blue pot.", "m2": "Tell me about the sea. " * 9}
    print_decisions(_content([], decisions=[*decisions, _decision(["m3"], "kept", "fits")]), texts)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    place = next(index for index, line in enumerate(lines) if line.startswith("m0 … m2 (3)"))

    assert lines[place + 1].startswith("The key is under the ")
    assert lines[place + 2].startswith("… Tell me about the ")


def test_without_history_there_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A line says why there is nothing to decide on."""
    print_decisions(_content([], decisions=[]))
    assert capsys.readouterr().out == "Decisions: none, since no history was read\n"


def test_long_ids_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    """Ids of more than 14 characters are shown by their first 12, and none is broken."""
    digits = "0123456789" * 3
    decisions = [
        _decision([digits, f"a{digits}"], "kept", "fits"),
        _decision([f"{name}{digits}" for name in "bcd"], "dropped", "older " * 30, tokens=99_999),
        _decision(["just14letters."], "truncated", "long"),
    ]
    print_explanation(_content([], decisions=decisions))
    words = capsys.readouterr().out.split()
    for name in ("012345678901…,", "a01234567890…", "b01234567890…", "d01234567890…"):
        assert name in words
    assert "just14letters." in words


def test_warnings_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings don't mix with results."""
    warnings = [
        WarningRecord(code="a", detail="odd", pointer="/x"),
        WarningRecord(code="b", detail="even"),
    ]
    print_warnings(warnings)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["warning: odd (/x)", "warning: even"]


def test_scores_and_budgets_have_columns_where_there_are_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neighbours of one outcome show the lowest and the highest of each; others need no column."""
    scored = [
        _decision([f"m{n}"], "dropped", "score", score=20.0 + n, smallest_budget=1200 - n)
        for n in range(3)
    ]
    print_decisions(_content([], decisions=scored))
    text = capsys.readouterr().out
    assert "20 to 22" in text
    assert "1,198 to 1,200" in text
    print_decisions(_content([], decisions=[_decision(["m"], "dropped", "score", score=0.0)]))
    text = capsys.readouterr().out
    assert "Score" in text
    assert "Fits from" not in text


def test_decisions_stand_under_their_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is more than one; neighbours of one outcome in two blocks are two rows."""
    kept = _decision(["m1"], "kept", "fits")
    run = kept.model_copy(update={"block": "RUN", "message_ids": ["x1"]})

    print_decisions(_content([], decisions=[kept, run]))
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]

    assert [name for name in lines if name in {"B", "RUN", "m1", "x1"}] == ["B", "m1", "RUN", "x1"]
