import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from formatters.model import (
    BEYOND_LIMIT,
    OLDER,
    Block,
    Entry,
    Facts,
    Message,
    Omission,
    Passage,
    Role,
)
from formatters.recalled import recalled
from service.budget.fit_recall import RecallInput, fit_recall, recall_rows
from service.budget.strategies.relevance import Relevance


def row(text: str, day: str = "[1]") -> Entry:
    """Return a row under the line of its day."""
    return Entry(text=f"  {text}", day=day, passage=Passage(text, Role.HUMAN), rows=1)


def test_nothing_is_ranked_if_all_rows_are_shown() -> None:
    """Rows beyond the limit may have been filtered, so that none is left to recall."""
    message = Message(id="m", role=Role.HUMAN, content="Hello")
    shown = Entry(text="Hello", messages=(message,), rows=1)
    older = Omission(message_ids=("old",), reason=BEYOND_LIMIT)
    memory = Block(tag="MEMORY", entries=(shown,), omissions=(older,), additive=True)
    request = RecallInput(
        rows=Block(tag="RECALLED", entries=(shown,), additive=True),
        strategy=Relevance(rank=lambda _question, _passages, _now: []),
        rank=lambda _passages: pytest.fail("nothing to rank"),
    )

    fitted = fit_recall(memory, request, 100, len)

    assert fitted.block.entries == (shown,)
    assert fitted.recall
    assert fitted.recall.rows.sent is None
    assert [(each.message_ids, each.outcome) for each in fitted.decisions] == [
        (("old",), "dropped"),
        (("m",), "kept"),
    ]


@pytest.mark.parametrize(("room", "turns", "found"), [(2_000, "abcd", 10), (200, "d", 0)])
def test_what_a_search_found_is_recalled_beside_all_turns_if_all_of_it_fits(
    room: int, turns: str, found: int
) -> None:
    """Where it doesn't, it competes with the older turns, which are shorter here."""
    older = [Message(id=f"f{n}", role=Role.HUMAN, content=f"{n}" * 90) for n in range(10)]
    newest = [Message(id=name, role=Role.HUMAN, content=name * 30) for name in "abcd"]
    rows = tuple(replace(row(each.content), messages=(each,)) for each in (*older, *newest))
    omission = Omission(message_ids=tuple(each.id for each in older), reason=OLDER)
    memory = Block(tag="MEMORY", entries=rows[10:], omissions=(omission,), additive=True)
    request = RecallInput(
        rows=Block(tag="RECALLED", entries=rows, additive=True),
        strategy=Relevance(rank=lambda _question, _passages, _now: []),
        rank=lambda passages: [1.0 for _ in passages],
    )

    fitted = fit_recall(memory, request, room, len)

    assert "".join(entry.messages[0].id for entry in fitted.block.entries) == turns
    assert fitted.recall
    assert len(fitted.recall.rows.recalled & {each.id for each in older}) == found


def test_rows_that_repair_removed_are_not_recalled() -> None:
    """A row whose own message is gone is no candidate; one that lost a result still is."""
    asked = Message(id="asked", role=Role.HUMAN, content="Where?")
    said = Message(id="said", role=Role.AI, content="At the lake")
    result = Message(id="result", role=Role.TOOL, content="lake")
    rows = tuple(
        replace(row(messages[0].content), messages=messages)
        for messages in ((asked,), (said, result))
    )
    gone = Omission(message_ids=("asked", "result"), reason="orphan_result")
    whole = Block(tag="HISTORY", entries=(Entry(text="", messages=(said,)),), omissions=(gone,))
    request = RecallInput(
        rows=Block(tag="RECALLED", entries=rows, additive=True),
        strategy=Relevance(rank=lambda _question, _passages, _now: []),
        rank=lambda passages: [1.0 for _ in passages],
    )

    found = recall_rows(whole, replace(whole, entries=()), request, 200, len)

    assert [(each.message_ids, each.outcome) for each in found.present] == [
        (("said", "result"), "kept")
    ]
    assert [each._replace(score=None) for each in found.decide()] == found.present


def test_what_is_asked_again_is_not_recalled() -> None:
    """The question is shown already; what others said in the same words is recalled."""
    said = [
        Message(id=role.name, role=role, content="Where is it?") for role in (Role.HUMAN, Role.AI)
    ]
    rows = tuple(
        replace(row(each.content), messages=(each,), passage=Passage(each.content, each.role))
        for each in said
    )
    request = RecallInput(
        rows=Block(tag="RECALLED", entries=rows, additive=True),
        strategy=Relevance(rank=lambda _question, _passages, _now: []),
        rank=lambda passages: [1.0 for _ in passages],
        question="where is  it?",
    )

    whole = Block(tag="HISTORY", entries=rows)
    found = recall_rows(whole, replace(whole, entries=()), request, 200, len)

    assert [(each.message_ids, each.reason) for each in found.decide()] == [
        (("HUMAN",), "repeated"),
        (("AI",), "recalled"),
    ]


@pytest.mark.parametrize(
    ("room", "outcome", "reason", "lines", "gaps"),
    [
        (2_500, "kept", "recalled", range(80), 0),
        (1_300, "truncated", "passages", [*range(23), *range(46, 69)], 2),
        (800, "truncated", "passages", range(23), 1),
        (100, "dropped", "no_room", (), 0),
    ],
)
def test_a_long_message_has_one_decision(
    room: int, outcome: str, reason: str, lines: Sequence[int], gaps: int
) -> None:
    """Whichever passages of it are shown, and whole if all of them are."""
    said = " ".join(f"Line {n} of the text." for n in range(80))
    message = Message(id="long", role=Role.HUMAN, content=said)
    block = recalled(Facts(current_input="", history=(message,), recalls=True))
    scores = [4.0, 1.0, 3.0, 2.0]
    request = RecallInput(
        rows=block,
        strategy=Relevance(rank=lambda _question, _passages, _now: []),
        rank=lambda passages: scores[: len(passages)],
    )

    found = recall_rows(block, replace(block, entries=()), request, room, len)

    assert [each[:4] for each in found.decide()] == [(("long",), "RECALLED", outcome, reason)]
    assert len(found.present) == bool(lines)
    text = found.sent.text if found.sent else ""
    assert [int(n) for n in re.findall(r"Line (\d+) of", text)] == [*lines]
    assert text.count("...") == gaps
