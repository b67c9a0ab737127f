from collections.abc import Sequence, Set
from dataclasses import replace

import pytest

from formatters.model import Count, Entry, Passage, Role
from service.budget.select_rows import (
    MAX_MISSES,
    Forms,
    RowSelection,
    make_key,
    score_forms,
    select_rows,
)

# `len` counts: a row costs its characters and a newline


def row(text: str, day: str = "[1]") -> Entry:
    """Return a row under the line of its day."""
    return Entry(text=f"  {text}", day=day, passage=Passage(text, Role.HUMAN), rows=1)


def select(
    rows: Sequence[Entry],
    ranked: Sequence[int],
    room: int,
    count: Count = len,
    keys: Set[tuple[Role | None, str]] = frozenset(),
) -> RowSelection:
    """Select rows, or their passages, in the order of their indices."""
    forms = score_forms(rows, lambda passages: [0.0] * len(passages))
    return select_rows(forms, ranked, keys, room, count)


def long(*parts: str, day: str = "[1]") -> Entry:
    """Return a row with passages, which are joined by a stroke."""

    def join(indices: Sequence[int]) -> Entry:
        return row("/".join(parts[index] for index in indices), day)

    passages = [row(part, day) for part in parts]
    forms = tuple(replace(each, passage=continued(each)) for each in passages)
    whole = row("".join(parts), day)
    return replace(whole, passages=(passages[0], *forms[1:]), join=join)


def continued(form: Entry) -> Passage:
    """Return the passage of a form as a later one."""
    assert form.passage
    return form.passage._replace(continues=True)


def test_the_best_are_selected_first() -> None:
    """A day's line costs tokens with its first row, and what costs too many is passed over."""
    rows = [row("aaaa"), row("bbbb" * 9), row("cc"), row("dd", "[2]")]

    # 7 and 4 for the first and its day, 5 for the third, which has the same day
    found = select(rows, [0, 1, 2, 3], 16)
    assert (found.selected, found.tokens) == ({0, 2}, {0: 7, 1: 39, 2: 5})
    # another day costs its line
    assert select(rows, [0, 3], 19).selected == {0}
    assert select(rows, [0, 3], 20).selected == {0, 3}


def test_passages_are_scored_in_their_order() -> None:
    """In place of their row."""
    rows = [row("aa"), long("one", "two"), row("bb")]

    def rank(passages: Sequence[Passage]) -> Sequence[float]:
        assert [each.text for each in passages] == ["aa", "one", "two", "bb"]
        return [3, 1, 2, 0]

    forms = score_forms(rows, rank)
    assert forms.entries == [rows[0], *rows[1].passages, rows[2]]
    assert (forms.scores, forms.row_of) == ([3, 1, 2, 0], [0, 1, 1, 2])


def test_rows_that_do_not_fit_alone_are_named() -> None:
    """Rows longer than all of the room are distinguished from rows that found too little left."""
    rows = [row("aaaa"), row("b" * 20), row("c" * 500), row("dddd", "[2]")]

    found = select(rows, [0, 1, 2, 3], 18)
    assert (found.selected, found.too_long) == ({0}, {1, 2})
    assert found.tokens == {0: 7, 1: 23, 3: 7}


def test_a_day_that_is_interrupted_costs_two_lines() -> None:
    """Its line may be printed twice, so there is room for it."""
    rows = [row("aa"), row("bb", "[unknown]"), row("cc")]

    assert select(rows, [0, 2], 17).selected == {0}
    assert select(rows, [0, 2], 18).selected == {0, 2}


def test_nothing_is_selected_twice() -> None:
    """A row whose text is already there, in any case and punctuation, is not selected again."""
    rows = [row("Yes, please!"), row("yes please"), row("no"), row("👍"), row("👍"), row("👎")]

    found = select(rows, range(6), 500, keys={make_key(row("No."))})
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
    assert not select(rows, range(len(rows)), 10, count).shown
    assert sum(text.startswith("  x") for text in counted) == 2 * MAX_MISSES
    counted.clear()
    assert select([row("x" * 500)], [0], 10, count).selected == set()
    assert not any(text.startswith("  x") for text in counted)


@pytest.mark.parametrize("room", [-5, 0])
def test_without_tokens_nothing_is_selected(room: int) -> None:
    """No room is no error."""
    assert select([row("a")], [0], room).selected == set()


def test_passages_of_a_row_are_one_entry() -> None:
    """They are joined in order, and cost what they cost together."""
    rows = [row("aa"), long("one", "two", "six"), row("bb")]

    # 5 and 4 for the first and its day; of the second, 6 for a passage alone, and 10 for two
    found = select(rows, [0, 3, 1], 21)
    assert {index: each.text for index, each in found.shown.items()} == {0: "  aa", 1: "  one/six"}
    assert found.tokens == {0: 5, 1: 10}
    assert found.selected == {0, 1, 3}
    # alone, each passage has to fit
    assert select(rows, [0, 3, 1], 20).tokens == {0: 5, 1: 6}


def test_what_joining_saves_is_used() -> None:
    """By what is tried next."""
    rows = [long("o" * 60, "t" * 60), row("b" * 60), row("c")]

    # 63 for each passage, and 124 for both
    assert select(rows, [0, 1, 2], 4 + 124 + 62).shown.keys() == {0}
    assert select(rows, [0, 1, 2], 4 + 124 + 63).shown.keys() == {0, 1}
    assert select(rows, [0, 1, 3], 4 + 126).shown.keys() == {0}
    assert select(rows, [0, 1, 3], 4 + 128).shown.keys() == {0, 2}


def test_joined_passages_never_exceed_the_room() -> None:
    """If they have more tokens than each alone, the last ones that were added are left out."""
    rows = [row("aa"), long("one", "two", "six")]

    def count(text: str) -> int:
        return len(text) + 50 * text.count("/")

    found = select(rows, [0, 1, 2, 3], 100, count)
    assert {index: each.text for index, each in found.shown.items()} == {0: "  aa", 1: "  one/two"}
    assert (found.selected, found.tokens) == ({0, 1, 2}, {0: 5, 1: 60})
    found = select(rows, [0, 1, 2, 3], 40, count)
    assert {index: each.text for index, each in found.shown.items()} == {0: "  aa", 1: "  one"}


def test_what_repeats_a_passage_that_is_taken_back_is_no_repetition() -> None:
    """It is shown nowhere."""

    def count(text: str) -> int:
        return len(text) + 50 * text.count("/")

    found = select([long("one", "two"), row("two")], [0, 1, 2], 50, count)
    assert {index: each.text for index, each in found.shown.items()} == {0: "  one"}
    assert found.explain() == {1: "score"}


def test_passages_of_a_row_that_do_not_fit_are_one_miss() -> None:
    """So that shorter rows are tried after a few long ones."""
    parts = [letter * 99 for letter in "abcdefghijklmnopqrstuvwxy"]
    rows = [*(long(*[f"{n}{part}" for part in parts]) for n in range(5)), row("cc")]

    assert select(rows, range(126), 20).shown.keys() == {5}


def test_a_passage_that_is_shown_is_not_shown_again() -> None:
    """Of another row with the same passage, others may be."""
    rows = [long("one", "two"), long("one", "six"), long("one", "two")]

    found = select(rows, range(6), 500)
    assert {index: each.text for index, each in found.shown.items()} == {0: "  one/two", 1: "  six"}
    assert (found.repeated, found.explain()) == ({2, 4, 5}, {2: "repeated"})


def test_a_row_is_explained_by_its_best_passage() -> None:
    """It has no room if a worse passage of another row is selected in its place."""
    rows = [long("one", "two"), row("b" * 30), long("c" * 40, "d" * 30), row("eeee")]

    found = select(rows, [0, 2, 3, 1, 4, 5], 20)
    assert found.shown.keys() == {0}
    assert found.explain() == {1: "no_room", 2: "no_room", 3: "score"}
    assert found.list_tokens(0) == {0: 10, 1: 33, 2: 43, 3: 7}
    found = select(rows, [0, 2], 20)
    assert found.list_tokens(0) == {0: 6, 1: 33}
    assert select([row("x" * 500)], [0], 10).list_tokens(1) == {0: 503}


def test_further_passages_are_ranked_lower() -> None:
    """Of rows with equal scores the newer is first, and of passages the earlier one."""
    rows = [row("aa"), long("one", "two", "six"), row("bb")]
    forms = Forms(rows, score_forms(rows, lambda _: []).entries, [7, 10, 10, 9, 7], [0, 1, 1, 1, 2])

    assert forms.rank(frozenset(), frozenset()) == [1, 2, 3, 4, 0]
    assert forms._replace(scores=[7.5, 10, 10, 9, 7.5]).rank(set(), set()) == [1, 2, 4, 0, 3]
    assert forms.rank({0}, {1}) == [2, 3, 4]
    assert forms.rank({1}, set()) == [4, 0]
    assert forms.find_best([1, 2, 3, 4, 0]) == {1: 1, 2: 4, 0: 0}


def test_the_rest_of_a_code_block_is_ranked_by_the_best_passage() -> None:
    """What is next to the best one in its block, before or after it."""
    rows = [row("aa"), long("one", "two", "six", "ten")]
    entries = [*score_forms(rows, lambda _: []).entries]
    for index in (2, 3):  # the last passage is of no code block
        passage = entries[index].passage
        assert passage
        entries[index] = replace(entries[index], passage=passage._replace(continues_code=True))

    def rank(*scores: float) -> list[int]:
        return Forms(rows, entries, scores, [0, 1, 1, 1, 1]).rank(set(), set())

    # 7.5 for those next to the best
    assert rank(7, 1, 10, 2, 0) == [2, 3, 1, 0, 4]
    assert rank(8, 1, 10, 2, 0) == [2, 0, 3, 1, 4]
    # but not for one that is further away, or not of the block
    assert rank(3, 10, 1, 2, 0) == [1, 2, 0, 3, 4]
    assert rank(3, 0, 2, 2, 10) == [4, 0, 2, 3, 1]
    # another one that answers, too, comes first
    assert rank(0, 10, 1, 9.5, 2) == [1, 3, 2, 4, 0]


def test_scores_may_be_negative() -> None:
    """The best passage of a row comes first all the same."""
    forms = Forms([row("aa")], long("one", "two").passages, [-5, -6], [0, 0])

    assert forms.rank(set(), set()) == [0, 1]


def test_a_row_without_passages_is_a_form() -> None:
    """If no row has several, rows are ranked as they are."""
    rows = [row("aa"), row("bb"), row("cc")]
    forms = score_forms(rows, lambda _: [1, 2, 2])

    assert forms.rank({0}, set()) == [2, 1]
    assert forms.find_best([2, 1]) == {2: 2, 1: 1}
