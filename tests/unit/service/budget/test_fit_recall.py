from collections.abc import Sequence
from dataclasses import replace

import pytest

from formatters.model import BEYOND_LIMIT, Block, Entry, Message, Omission, Passage, Role
from service.budget.fit_recall import (
    MAX_MISSES,
    RecallRequest,
    choose_passages,
    fit_recall,
    make_key,
    recall_rows,
    select_rows,
)
from service.budget.strategies.relevance import Relevance

# `len` counts: a row costs its characters and a newline


def row(text: str, day: str = "[1]") -> Entry:
    """Return a row under the line of its day."""
    return Entry(text=f"  {text}", day=day, passage=Passage(text, Role.HUMAN), rows=1)


def test_the_best_are_bought_first() -> None:
    """A day's line is paid with its first row, and what is too dear is passed over."""
    rows = [row("aaaa"), row("bbbb" * 9), row("cc"), row("dd", "[2]")]

    # 7 and 4 for the first and its day, 5 for the third, which has the same day
    found = select_rows(rows, [0, 1, 2, 3], set(), 16, len)
    assert (found.selected, found.tokens) == ({0, 2}, {0: 7, 1: 39, 2: 5})
    # another day costs its line
    assert select_rows(rows, [0, 3], set(), 19, len).selected == {0}
    assert select_rows(rows, [0, 3], set(), 20, len).selected == {0, 3}


def test_a_row_scores_by_its_best_passage() -> None:
    """All passages are ranked in their order; of equal ones the first is shown."""
    parts = (row("one"), row("two"), row("three"))
    rows = [row("aa"), replace(row("one two three"), passages=parts), row("bb")]

    def rank(passages: Sequence[Passage]) -> Sequence[float]:
        assert [each.text for each in passages] == ["aa", "one", "two", "three", "bb"]
        return [3, 1, 2, 2, 0]

    assert choose_passages(rows, rank) == ((rows[0], parts[1], rows[2]), [3, 2, 0])
    assert choose_passages([], lambda _: []) == ((), [])


def test_rows_that_do_not_fit_alone_are_named() -> None:
    """Rows longer than all of the room are distinguished from rows that found too little left."""
    rows = [row("aaaa"), row("b" * 20), row("c" * 500), row("dddd", "[2]")]

    found = select_rows(rows, [0, 1, 2, 3], set(), 18, len)
    assert (found.selected, found.too_long) == ({0}, {1, 2})
    assert found.tokens == {0: 7, 1: 23, 3: 7}


def test_a_day_that_is_interrupted_is_paid_twice() -> None:
    """Its line may be printed twice, so there is room for it."""
    rows = [row("aa"), row("bb", "[unknown]"), row("cc")]

    assert select_rows(rows, [0, 2], set(), 17, len).selected == {0}
    assert select_rows(rows, [0, 2], set(), 18, len).selected == {0, 2}


def test_nothing_is_bought_twice() -> None:
    """A row whose text is already there, in any case and punctuation, is not selected again."""
    rows = [row("Yes, please!"), row("yes please"), row("no"), row("👍"), row("👍"), row("👎")]

    found = select_rows(rows, range(6), {make_key(row("No."))}, 500, len)
    assert (found.selected, found.repeated) == ({0, 3, 5}, {1, 2, 4})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The balance is -250 euros", "The balance is 250 euros"),
        ("I write C++", "I write C#"),
        ("It costs 1.250 euros", "It costs 1,250 euros"),
        ("a<b where flag is !ready", "a>b where flag is ready"),
        ("Dinner tonight 👍", "Dinner tonight 👎"),
        ("मेरी माँ का नाम गीता", "मेरा मां की नाम गीत"),
        ("Really?", "Really."),
    ],
)
def test_what_differs_in_a_sign_says_something_else(one: str, other: str) -> None:
    """A minus, an operator, an emoji or a vowel sign may be all that matters."""
    assert make_key(row(one)) != make_key(row(other))


def test_two_who_say_the_same_are_two() -> None:
    """A yes of the other one is no repetition."""
    said = row("Yes")
    assert said.passage
    answer = replace(said, passage=said.passage._replace(speaker=Role.AI))
    assert make_key(said) != make_key(answer)


def test_the_search_ends() -> None:
    """After n rows that don't fit, no more are counted; long ones never are."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    rows = [row("x" * 30 + str(n)) for n in range(2 * MAX_MISSES)]
    assert select_rows(rows, range(len(rows)), set(), 10, count).selected == set()
    assert sum(text.startswith("  x") for text in counted) == 2 * MAX_MISSES
    counted.clear()
    assert select_rows([row("x" * 500)], [0], set(), 10, count).selected == set()
    assert not any(text.startswith("  x") for text in counted)


@pytest.mark.parametrize("room", [-5, 0])
def test_without_tokens_nothing_is_bought(room: int) -> None:
    """No room is no error."""
    assert select_rows([row("a")], [0], set(), room, len).selected == set()


def test_nothing_is_ranked_if_all_rows_are_shown() -> None:
    """Rows beyond the limit may have been filtered, so that none is left to recall."""
    message = Message(id="m", role=Role.HUMAN, content="Hello")
    shown = Entry(text="Hello", messages=(message,), rows=1)
    older = Omission(message_ids=("old",), reason=BEYOND_LIMIT)
    memory = Block(tag="MEMORY", entries=(shown,), omissions=(older,), additive=True)
    request = RecallRequest(
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
    request = RecallRequest(
        rows=Block(tag="RECALLED", entries=rows, additive=True),
        strategy=Relevance(rank=lambda _question, _passages, _now: []),
        rank=lambda passages: [1.0 for _ in passages],
    )

    found = recall_rows(whole, replace(whole, entries=()), request, 200, len)

    assert found.candidates == [rows[1]]
    assert [(each.message_ids, each.outcome) for each in found.present] == [
        (("said", "result"), "kept")
    ]
    assert found.decide() == found.present
