import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.extractive import MAX_CHARS, split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("He said “no.” Then he left.", ["He said “no.”", "Then he left."]),
        (
            "Dr. Lee met J. Smith at 3.15 p.m. today.",
            ["Dr. Lee met J. Smith at 3.15 p.m.", "today."],
        ),
        ("Call Mr.\nLee", ["Call Mr.", "Lee"]),
        ("first line\r\n\n  second   line ", ["first line", "second line"]),
        ("今日は雨。「行く？」と聞いた。", ["今日は雨。", "「行く？」", "と聞いた。"]),
        ("see example.com/a.b now", ["see example.com/a.b now"]),
        ("  \n\t", []),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    """A sentence ends with a stop before a blank, with a stop of scripts without, or its line."""
    assert list(split_sentences(text)) == expected


def test_what_never_ends_is_cut() -> None:
    """At a blank where there is one, and anywhere where there is none."""
    with_blanks = list(split_sentences("word " * 200))
    without = list(split_sentences("ก" * 1000))

    assert {len(each) <= MAX_CHARS for each in (*with_blanks, *without)} == {True}
    assert " ".join(with_blanks) == ("word " * 200).strip()
    assert "".join(without) == "ก" * 1000


@given(st.text(alphabet=st.sampled_from("ab .!?。\n\r\u2028\x85」\"'Mr"), max_size=400))
def test_nothing_is_lost(text: str) -> None:
    """Sentences together have the characters of the text in their order, and no line has two."""
    found = list(split_sentences(text))

    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(each.splitlines() == [each] for each in found)
