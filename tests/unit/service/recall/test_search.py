"""The requests to an index, and the best of its results."""

from itertools import chain

from service.recall.search import (
    CONTEXT_TOKENS,
    MAX_FOUND,
    MAX_SINGLE_TERMS,
    NEAR_HITS,
    NEAR_TOKENS,
    Hit,
    IndexQuery,
    RowPosition,
    TermStatistics,
    TokenRange,
    choose_query,
    merge_hits,
    rank_hits,
    take_best,
    take_dated,
    token_ranges,
    whole_ranges,
)

ROWS = 1_000_000


def known(*having: int, scope: int = ROWS) -> TermStatistics:
    """Return terms, numbered from 1, by the rows that have them."""
    return TermStatistics(rows=ROWS, scope=scope, having=dict(enumerate(having, 1)))


def test_rare_terms_are_requested_alone_and_common_ones_in_pairs() -> None:
    """A word that half of all rows have is never searched by itself."""
    assert choose_query(known(500_000, 10, 900, 20_000)) == IndexQuery(alone=(2, 3), pairs=())
    assert choose_query(known(20_000, 3, 40_000)) == IndexQuery(alone=(2,), pairs=((1, 3),))
    assert choose_query(known(500_000)) == IndexQuery()


def test_no_more_is_requested_than_can_be_read() -> None:
    """Rows of all terms together, and terms, however many a question has."""
    asked = choose_query(known(*[MAX_FOUND // 4] * 9))
    assert len(asked.alone) == 4
    assert len(choose_query(known(*[1] * 100)).alone) == MAX_SINGLE_TERMS


def test_a_conversation_bounds_what_a_term_can_find() -> None:
    """A word that is common elsewhere can be searched in a conversation of a few rows."""
    assert choose_query(known(500_000, scope=1_500)).alone == (1,)


def test_rare_terms_and_rows_close_by_make_a_row_better() -> None:
    """A row with both words precedes one next to the other word, which precedes one alone."""
    reported = known(10, 10)
    hits = [
        Hit(1, frozenset({1})),
        Hit(50, frozenset({1})),
        Hit(52, frozenset({2})),
        Hit(90, frozenset({1, 2})),
        Hit(200, frozenset({2})),
    ]
    assert rank_hits(hits[::-1], reported, 9) == [90, 52, 50, 200, 1]
    assert rank_hits(hits, reported, 2) == [90, 52]
    assert rank_hits([Hit(1, frozenset({1})), Hit(90, frozenset({2}))], known(10, 900), 1) == [1]


def test_what_is_near_the_best_is_read_first() -> None:
    """Then what is near the others, and what is further away; nothing is read twice."""
    near, far, late = NEAR_TOKENS, CONTEXT_TOKENS, 2 * NEAR_HITS
    spots = [RowPosition(5_000, 10), RowPosition(9_000, 10), RowPosition(5_000 - near, 10)]
    assert token_ranges([*spots, RowPosition(10_500, 10)], 9_030) == [
        (5_000 - near - 9, 5_000 + near, 0),
        (9_000 - near - 9, 9_030, 2),
        (5_000 - 2 * near - 9, 5_000 - near - 10, 4),
        (5_000 - far - 9, 5_000 - 2 * near - 10, late + 1),
        (5_000 + near + 1, 5_000 + far, late + 1),
        (9_000 - far - 9, 9_000 - near - 10, 2 * late + 1),
        (5_000 - near - far - 9, 5_000 - far - 10, 3 * late + 1),
    ]
    many = [RowPosition(1_000 * number, 10) for number in range(1, NEAR_HITS + 3)]
    order = [each.rank for each in token_ranges(many, 99_000)]
    assert order[: NEAR_HITS + 4] == [*range(0, late + 1, 2), late + 1, late + 1, late + 2]
    assert [rank for *_, rank in token_ranges([RowPosition(1_000, 10)] * 2, 9_000)] == [
        0,
        *[late + 1] * 2,
    ]
    unprinted = [RowPosition(1_000, 0), RowPosition(1_000, 10)]
    assert [each.rank for each in token_ranges(unprinted, 9_000)] == [2, *[2 * late + 1] * 2]
    assert token_ranges([], 10) == []


def test_whole_ranges_are_as_few_as_possible() -> None:
    """They cover the same positions, whichever hits overlap or touch."""
    far = 2 * CONTEXT_TOKENS + 10
    totals = (5_000, 5_000 + far, 5_000 + 2 * far + 1, 5_030 + 2 * far, 300, 9_900)
    spots = [*(RowPosition(total, 10) for total in totals), RowPosition(7_000, 0)]

    whole = whole_ranges(spots, 9_950)

    assert [each.last for each in whole] == [
        300 + CONTEXT_TOKENS,
        5_000 + far + CONTEXT_TOKENS,
        5_030 + 2 * far + CONTEXT_TOKENS,
        9_950,
    ]
    assert list_positions(whole) == list_positions(token_ranges(spots, 9_950))
    assert whole_ranges([], 10) == []


def list_positions(ranges: list[TokenRange]) -> list[int]:
    """Return all positions in ranges, ascending."""
    return sorted(chain.from_iterable(range(each.first, each.last + 1) for each in ranges))


def test_what_is_around_the_best_hits_is_taken_first() -> None:
    """A row that is around two of them counts once."""
    around = [(1, 7), (1, 8), (0, 8), (0, 9), (2, 1)]
    assert take_best(around, 9) == [9, 8, 7, 1]
    assert take_best(around, 3) == [9, 8, 7]
    assert take_best([], 3) == []


def test_two_rankings_take_turns() -> None:
    """Each row counts once, and the longer one goes on alone."""
    assert merge_hits(9, [1, 2, 3], [2, 4]) == [1, 2, 4, 3]
    assert merge_hits(2, [1, 2, 3], [2, 4]) == [1, 2]
    assert merge_hits(9, [], [5, 0]) == [5, 0]


def test_a_span_of_many_rows_gives_those_that_match_and_some_of_all() -> None:
    """Half of the hits at most are there for their time, as many of each span."""
    many = list(range(100))
    assert take_dated([many], [70, 30, 500], 10) == [70, 30, 0, 34, 67]
    assert take_dated([many, [7, 8]], [], 8) == [0, 50, 7, 8]
    assert take_dated([[1, 2]], [], 10) == [1, 2]
    assert take_dated([[], many], [5], 1) == [5]
    assert take_dated([], [5], 10) == []
