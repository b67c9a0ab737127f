import pytest

from formatters.model import BEYOND_LIMIT, Block, Entry, Message, Omission, Passage, Role
from service.budget.fit_recall import (
    MAX_MISSES,
    RecallRequest,
    fit_recall,
    normalize_words,
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
    assert select_rows(rows, [0, 1, 2, 3], set(), 16, len) == ({0: 7, 2: 5}, set())
    # another day costs its line
    assert select_rows(rows, [0, 3], set(), 19, len) == ({0: 7}, set())
    assert select_rows(rows, [0, 3], set(), 20, len) == ({0: 7, 3: 5}, set())


def test_a_day_that_is_interrupted_is_paid_twice() -> None:
    """Its line may have to stand twice, so there is room for it."""
    rows = [row("aa"), row("bb", "[unknown]"), row("cc")]

    assert select_rows(rows, [0, 2], set(), 17, len) == ({0: 5}, set())
    assert select_rows(rows, [0, 2], set(), 18, len) == ({0: 5, 2: 5}, set())


def test_nothing_is_bought_twice() -> None:
    """What a row says that is there already, in whatever case and marks, isn't bought again."""
    rows = [row("Yes, please!"), row("yes please"), row("no"), row("👍"), row("👍"), row("👎")]

    bought, repeated = select_rows(rows, range(6), {normalize_words(row("No."))}, 500, len)
    assert list(bought) == [0, 3, 5]
    assert repeated == {1, 2, 4}


def test_the_search_ends() -> None:
    """After so many rows that don't fit no more are counted, and long ones never are."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    rows = [row("x" * 30 + str(n)) for n in range(2 * MAX_MISSES)]
    assert select_rows(rows, range(len(rows)), set(), 10, count) == ({}, set())
    assert sum(text.startswith("  x") for text in counted) == 2 * MAX_MISSES
    counted.clear()
    assert select_rows([row("x" * 500)], [0], set(), 10, count) == ({}, set())
    assert not any(text.startswith("  x") for text in counted)


@pytest.mark.parametrize("room", [-5, 0])
def test_without_tokens_nothing_is_bought(room: int) -> None:
    """No room is no error."""
    assert select_rows([row("a")], [0], set(), room, len) == ({}, set())


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
    assert fitted.recall.sent is None
    assert [(each.message_ids, each.outcome) for each in fitted.decisions] == [
        (("old",), "dropped"),
        (("m",), "kept"),
    ]
