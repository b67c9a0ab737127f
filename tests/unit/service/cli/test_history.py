"""``ctxb history compact``: a history in few words, on demand."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli.exits import Exit
from service.cli.history import describe_summary, divide
from service.compaction.summarize import SkipReason
from service.config.settings import Settings
from service.connect import open_stores

Ctxb = Callable[..., Result]


@pytest.fixture
def ctxb_with_history(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> Ctxb:
    """Store thirty messages in a file, and return what runs commands over it."""
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///history.db")
    said = [
        {"role": ("user", "assistant")[n % 2], "content": f"In {2000 + n} we met in Rome. " * 12}
        for n in range(30)
    ]
    Path("chat.json").write_text(json.dumps(said))
    assert ctxb("history", "import", "chat.json", "--owner", "ana").exit_code == Exit.OK
    return ctxb


def test_a_history_is_compacted_on_demand(ctxb_with_history: Ctxb) -> None:
    """All but the newest turns get a summary, next to the history; then nothing is left to do."""
    first = ctxb_with_history("history", "compact", "ana")
    again = ctxb_with_history("history", "compact", "ana")

    assert first.exit_code == Exit.OK, first.stderr
    assert "summary of" in first.stdout
    assert "nothing to summarise" in again.stdout

    async def kept() -> tuple[int, int]:
        settings = Settings.model_validate({"store": {"url": "sqlite:///history.db"}})
        async with open_stores(settings) as stores:
            summaries = await stores.summaries.read("ana")
            return len(summaries), (await stores.history.recent("ana")).total

    assert asyncio.run(kept()) == (1, 30)


def test_where_no_summaries_are_made_it_says_so(
    ctxb_with_history: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is named."""
    monkeypatch.setenv("CTXB_SUMMARIES__ENABLED", "false")
    result = ctxb_with_history("history", "compact", "ana")
    assert result.exit_code == Exit.CONFIGURATION
    assert "summaries.enabled" in result.stderr


def test_every_outcome_is_reported() -> None:
    """In words for a person."""
    for unmade in SkipReason:
        assert describe_summary(unmade)


@pytest.mark.parametrize(
    "command",
    [
        ("recall", "-o", "ana", "-q", "soup"),
        ("history", "show", "-o", "ana"),
        ("history", "export", "-o", "ana"),
        ("history", "stats", "ana"),
        ("history", "rm", "ana", "--yes"),
        ("history", "compact", "ana"),
        ("build", "-o", "ana", "-i", "Hi"),
    ],
)
def test_a_store_that_is_not_there_is_not_made(
    command: tuple[str, ...], ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes a wrong path for a history without rows, or for one that was erased."""
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///typo.db")
    result = ctxb(*command)

    assert result.exit_code == Exit.UNREACHABLE
    assert "typo.db: there is no such file (store.url)" in result.stderr
    assert not Path("typo.db").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "msg", "-o", "ana"),
        ("restore", "--owner", "ana", "msg"),
        ("archive", "--json", "--owner", "ana"),
        ("rm", "--owner", "ana", "--yes"),
    ],
)
def test_an_owner_can_be_an_option_everywhere(
    command: tuple[str, ...], ctxb_with_history: Ctxb
) -> None:
    """As in the commands that have no other argument."""
    assert ctxb_with_history("history", *command).exit_code == Exit.OK
    forms = (("ana",), ("-o", "ana"), ("--owner=ana",))
    shown = {ctxb_with_history("history", "stats", *owner).stdout for owner in forms}
    assert len(shown) == 1
    assert "" not in shown


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (("history", "show", "-o", "nobody", "--json"), "[]\n"),
        (("history", "export", "-o", "nobody"), ""),
        (("history", "export", "-o", "ana", "--conversation", "none"), ""),
        (("history", "archive", "nobody", "--json"), "[]\n"),
    ],
)
def test_an_owner_without_rows_is_reported(
    command: tuple[str, ...], output: str, ctxb_with_history: Ctxb
) -> None:
    """On stderr: programs that read stdout get what they got."""
    result = ctxb_with_history(*command)

    assert (result.exit_code, result.stdout) == (Exit.OK, output)
    assert result.stderr == "note: the store has no such rows of this owner\n"


def test_rows_that_differ_from_stored_ones_are_counted(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import doesn't replace them; the same rows, and calls without content, are no conflict."""
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///history.db")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said: list[dict[str, object]] = [
        {"id": "dup", "role": "user", "content": "first"},
        {"id": "same", "role": " Assistant", "content": None, "tool_calls": [call]},
    ]
    warnings = []
    for content in ("first", "first", "fourth"):
        said[0]["content"] = content
        Path("chat.jsonl").write_text("\n".join(map(json.dumps, said)))
        result = ctxb("history", "import", "chat.jsonl", "--owner", "ana")
        assert result.exit_code == Exit.OK
        warnings.append(result.stderr)

    other = "warning: stored before with another content, which stays: 1 id, such as dup\n"
    assert warnings == ["", "", other]
    assert '"first"' in ctxb("history", "export", "--owner", "ana").stdout


@pytest.mark.parametrize(("timed", "sizes"), [([0], [200, 201, 51]), ([], [200, 200, 50])])
def test_rows_without_times_are_stored_in_small_transactions(
    timed: list[int], sizes: list[int]
) -> None:
    """Others can write between them; each begins with the last row that has a time."""
    rows: list[dict[str, object]] = [{"id": f"m{number}"} for number in range(450)]
    for number in timed:
        rows[number]["timestamp"] = "2025-01-01T00:00:00Z"
    batches = divide(rows)
    assert [len(batch) for batch in batches] == sizes
    assert all(batch[0] is rows[number] for number in timed for batch in batches)


@pytest.mark.parametrize("timed", [(), (0,), (250,), (449,), (100, 300), (300, 301, 302)])
def test_rows_are_stored_in_the_order_of_the_file(
    timed: tuple[int, ...], ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever there are times, after newer rows, and across transactions."""
    monkeypatch.setenv("CTXB_STORE__URL", "sqlite:///history.db")
    newer = {"role": "user", "content": "Now", "timestamp": "2026-01-01T00:00:00Z"}
    said = [{"role": "user", "content": str(n)} for n in range(450)]
    for number in timed:
        said[number]["timestamp"] = f"2025-01-01T00:00:00.{number:06}Z"
    for messages in ([newer], said):
        Path("chat.jsonl").write_text("\n".join(map(json.dumps, messages)))
        assert ctxb("history", "import", "chat.jsonl", "--owner", "ana").exit_code == Exit.OK

    rows = map(json.loads, ctxb("history", "export", "--owner", "ana").stdout.splitlines())
    texts = [row["content"] for row in rows]
    expected = [each["content"] for each in ([*said, newer] if timed else [newer, *said])]
    assert texts == expected
