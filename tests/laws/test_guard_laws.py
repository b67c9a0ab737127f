"""Laws of the guard: no line that we didn't write begins as our lines do."""

from hypothesis import given
from hypothesis import strategies as st

from bench.forgeries import ENDS, OPENINGS, PIECES
from bench.hostile import judge_texts
from bench.reader import TOKENS, find_tokens, is_plain
from formatters.guard import GUARD, Place, normalize

PLACES = st.sampled_from(Place)
LINES = st.one_of(
    st.builds("{}{}".format, st.sampled_from(OPENINGS), st.sampled_from(PIECES)),
    st.builds("{}{}{}".format, st.text(max_size=5), st.sampled_from(TOKENS), st.text(max_size=5)),
    st.text(max_size=20),
    st.sampled_from(["plain words, so many.", "", " "]),
)
HOSTILE = st.lists(
    st.builds("{}{}".format, LINES, st.sampled_from([*ENDS, ""])), min_size=1, max_size=5
).map("".join)


@given(HOSTILE, PLACES)
def test_what_is_quoted_can_be_had_back(text: str, place: Place) -> None:
    """Any text is what it was, but for its line ends and what doesn't show; no token is left."""
    shown = GUARD.quote(text, place)

    assert GUARD.unquote(shown, place) == normalize(text)
    assert not find_tokens(shown)


@given(HOSTILE)
def test_a_line_is_plain_or_behind_the_gutter(text: str) -> None:
    """Every line of a text of its own, and every further line of a row, whatever is around it."""
    lines, row = GUARD.quote(text).split("\n"), GUARD.quote(text, Place.ROW).split("\n")

    assert lines[1:] == row[1:]
    assert lines == [GUARD.quote(line) for line in normalize(text).split("\n")]
    for line in lines:
        assert not line.strip() or line.startswith("| ") or is_plain(line)


@given(HOSTILE)
def test_readers_find_our_lines_and_no_others(text: str) -> None:
    """With any text in every place, layout and form they find what they find with plain words."""
    assert judge_texts([text]) == {}
