"""Passages of long texts."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.passages import (
    GAP,
    MAX_PASSAGES,
    find_passages,
    join_passages,
    list_continuing_code,
)

#: The characters of both gaps.
GAPS = 2 * len(f"{GAP} ")


def split_passages(text: str, chars: int) -> list[str]:
    """Return the passages of a text, each shown alone."""
    return [join_passages(text, [span]) for span in find_passages(text, chars)]


def said(text: str, chars: int) -> list[str]:
    """Return passages of at most ``chars`` characters without the gaps."""
    passages = split_passages(text, chars + GAPS)
    return [re.sub(r"^\.\.\.[ \n]|[ \n]\.\.\.$", "", passage) for passage in passages]


def test_gaps_are_marked() -> None:
    """Where text is left out, on a line of its own if there are lines."""
    text = "One two three, four.\n\nFive six seven\neight nine.\n\nTen eleven, twelve."

    assert split_passages(text, 30 + GAPS) == [
        "One two three, four. ...",
        "...\nFive six seven\neight nine.\n...",
        "... Ten eleven, twelve.",
    ]
    assert split_passages("Short.", 500) == ["Short."]


def test_passages_end_at_the_best_boundary() -> None:
    """Paragraphs before lines, lines before sentences, sentences before words."""
    assert said("aaaa bbb\n\ncc\ndd eeee", 12) == ["aaaa bbb", "cc\ndd eeee"]
    assert said("aaaa bbb\ncc. dd eeee", 12) == ["aaaa bbb", "cc. dd eeee"]
    assert said("aaaa bbb. cc dd eee", 12) == ["aaaa bbb.", "cc dd eee"]
    assert said("aaaa bbbb cc dddddd", 12) == ["aaaa bbbb", "cc dddddd"]
    assert said("a" * 20, 12) == ["a" * 12, "a" * 8]
    assert said("一二三四五六七。八九十一二三四", 12) == ["一二三四五六七。", "八九十一二三四"]


def test_a_short_passage_begins_earlier() -> None:
    """At a line, or else at a word; only if there is one in time."""
    assert said("aaaa bb cc\ndd eeee ff", 12) == ["aaaa bb cc", "dd eeee ff"]
    assert said("aaaa bbb cc\nff", 12) == ["aaaa bbb cc", "ff"]
    assert said("aaaa bb cccc ff", 12) == ["aaaa bb", "bb cccc ff"]
    assert said("a" * 14, 12) == ["a" * 12, "aa"]


BLOCK = "x = 1\n" * 8
PROSE = "Some more words.\n" * 4


@pytest.mark.parametrize(
    ("text", "continuing"),
    [
        (f"```py\n{BLOCK}```\n{PROSE}", [1]),
        (f"{PROSE}~~~\n{BLOCK}```\n{BLOCK}~~~", [2, 3, 4]),
        (f"- Do this:\n  - ```sh\n{BLOCK}    ```\n{PROSE}", [1]),
        (f"2. ````md\r\n```\n{BLOCK}```\n````\r\n{PROSE}", [1]),
        # it ends with the text
        (f"```\n{BLOCK}", [1]),
        # no block, but code in a line
        (f"```pip install x``` does it.\n{PROSE}", []),
        (f"``` and ``` are marks.\n{PROSE}```\ny\n```", []),
        # only the mark at its end is in the next passage
        (f"```\n{BLOCK[:36]}```\n{PROSE}", []),
    ],
)
def test_passages_that_continue_a_code_block_are_found(
    text: str, continuing: Sequence[int]
) -> None:
    """Blocks are those of Markdown: a mark opens one, and the same mark alone closes it."""
    spans = find_passages(text, 40 + GAPS)

    assert list_continuing_code(text, spans) == continuing, [text[slice(*span)] for span in spans]


def test_code_blocks_stay_whole() -> None:
    """A block that fits into a passage begins a new one; a longer one is split like other text."""
    block = "```\nx = 1\ny = 2\n```"
    assert said(f"Some text.\n\n{block}", 25) == ["Some text.", block]
    assert said(f"x\n\n{block}", len(block) + 1)[0] == "x\n\n```\nx = 1\ny = 2"
    long = "```\n" + "x = 1\n" * 10 + "```"
    assert said(f"Some text.\n\n{long}", 25)[0] == "Some text.\n\n```\nx = 1"
    assert said(f"Some text.\n\n{long[:-3]}", 25)[0] == "Some text.\n\n```\nx = 1"


def test_blank_text_is_no_passage_and_there_is_an_end() -> None:
    """The end of a very long text is in no passage."""
    assert said("a" * 12 + " " * 12, 12) == ["a" * 12]
    assert len(split_passages("word " * 10_000, 100)) == MAX_PASSAGES


@given(st.text(alphabet="ab `\n!。", max_size=400), st.integers(20, 100))
def test_passages_are_short_and_have_all_words(text: str, chars: int) -> None:
    """No passage is longer than the limit; each is a part of the text, and none is left out."""
    passages = split_passages(text, chars)
    bare = said(text, chars - GAPS)

    assert all(len(passage) <= chars for passage in passages)
    assert all(passage in text for passage in bare)
    assert len("".join("".join(bare).split())) >= len("".join(text.split()))


def test_joined_passages_are_continuous() -> None:
    """A gap is where text is left out, on a line of its own if any passage has lines."""
    text = (
        "One two three, four.\n\nFive six seven\neight nine.\n\n"
        "Ten eleven, twelve.\n\nSo it ends here now."
    )
    one, two, three, four = find_passages(text, 30 + GAPS)

    assert join_passages(text, [one, three]) == "One two three, four. ... Ten eleven, twelve. ..."
    assert (
        join_passages(text, [two, four])
        == "...\nFive six seven\neight nine.\n...\nSo it ends here now."
    )
    assert join_passages(text, [one, two]) == (
        "One two three, four.\n\nFive six seven\neight nine.\n..."
    )
    assert join_passages(text, [one, two, three, four]) == text


def test_passages_that_overlap_have_no_text_twice() -> None:
    """A short passage begins within the one before it, or even earlier."""
    text = "aaaa bb cccc ff"

    assert join_passages(text, find_passages(text, 12 + GAPS)) == text
    assert join_passages(text, [(5, 7), (0, 12)]) == "aaaa bb cccc ..."


@given(st.text(alphabet="ab `\n!。", max_size=400), st.integers(20, 100), st.data())
def test_all_passages_together_are_the_text(text: str, chars: int, data: st.DataObject) -> None:
    """Some of them have all that each of them has, and no gap but where one of them has it."""
    spans = find_passages(text, chars)
    if not spans:
        return
    chosen = sorted(data.draw(st.sets(st.sampled_from(spans), min_size=1)), key=spans.index)

    assert join_passages(text, spans).strip() == text.strip()
    joined = join_passages(text, chosen)
    assert all(text[i:j].strip("\n").rstrip() in joined for i, j in chosen)
    assert joined.count(GAP) <= len(chosen) + 1
