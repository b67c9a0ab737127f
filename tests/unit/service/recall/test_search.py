"""What an index is asked for, and what is best of what it gives."""

from service.recall.search import (
    MOST_ALONE,
    MOST_FOUND,
    REACH,
    Hit,
    Known,
    Query,
    Spot,
    best,
    stretches,
    to_ask,
)

ROWS = 1_000_000


def known(*having: int, scope: int = ROWS) -> Known:
    """Return terms, numbered from 1, by the rows that have them."""
    return Known(rows=ROWS, scope=scope, having=dict(enumerate(having, 1)))


def test_rare_terms_are_asked_for_alone_and_common_ones_in_pairs() -> None:
    """A word that half of all rows have is never asked for by itself."""
    assert to_ask(known(500_000, 10, 900, 20_000)) == Query(alone=(2, 3), pairs=())
    assert to_ask(known(20_000, 3, 40_000)) == Query(alone=(2,), pairs=((1, 3),))
    assert to_ask(known(500_000)) == Query()


def test_no_more_is_asked_for_than_can_be_read() -> None:
    """Rows of all terms together, and terms, however many a question has."""
    asked = to_ask(known(*[MOST_FOUND // 4] * 9))
    assert len(asked.alone) == 4
    assert len(to_ask(known(*[1] * 100)).alone) == MOST_ALONE


def test_a_conversation_bounds_what_a_term_can_find() -> None:
    """A word that is common elsewhere can be asked for in a conversation of a few rows."""
    assert to_ask(known(500_000, scope=1_500)).alone == (1,)


def test_rare_terms_and_rows_close_by_make_a_row_better() -> None:
    """One with both words goes before one beside the other word, and that before one alone."""
    told = known(10, 10)
    hits = [Hit(1, {1}), Hit(50, {1}), Hit(52, {2}), Hit(90, {1, 2}), Hit(200, {2})]
    assert best(hits[::-1], told, 9) == [90, 52, 50, 200, 1]
    assert best(hits, told, 2) == [90, 52]
    assert best([Hit(1, {1}), Hit(90, {2})], known(10, 900), 1) == [1]


def test_stretches_keep_the_order_of_the_best() -> None:
    """What two rows reach is the better one's, what lies between others is read too."""
    spots = [Spot(5_000, 10), Spot(9_000, 10), Spot(5_000 - REACH, 10), Spot(10_500, 10)]
    assert stretches(spots, 9_050) == [
        (5_000 - REACH - 9, 5_000 + REACH),
        (9_000 - REACH - 9, 9_050),
        (5_000 - 2 * REACH - 9, 5_000 - REACH - 10),
    ]
    around = [Spot(1_000, 10), Spot(1_400, 10), Spot(1_200, 300)]
    assert stretches(around, 9_000)[2:] == [
        (900 - REACH + 1, 1_000 - REACH - 10),
        (1_000 + REACH + 1, 1_400 - REACH - 10),
    ]
    assert stretches([Spot(1_000, 10)] * 2, 9_000) == [(1_000 - REACH - 9, 1_000 + REACH)]
    assert stretches([], 10) == []
