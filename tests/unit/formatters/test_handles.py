"""Handles, lines, and previews of long texts."""

import pytest

from formatters.guard import GUARD, OFF
from formatters.handles import (
    HANDLE_CHARS,
    LINE_CHARS,
    LONGEST_HANDLE,
    is_handle,
    make_handle,
    preview,
    split_lines,
)
from formatters.model import PreviewLimit
from service.adapters.tokens.tokenizers import get_token_counter
from service.ports.services import TokenCounter

COUNTERS = [get_token_counter(encoding_name=name) for name in ("o200k_base", "cl100k_base")]


def words(text: str) -> int:
    """Count words, so that numbers of tokens can be read in a test."""
    return len(text.split())


@pytest.mark.parametrize("row_id", ["m1", "msg_" + "0" * 32, "öß", "\ud800", "x" * 256])
def test_a_handle_is_short_and_the_same_each_time(row_id: str) -> None:
    """It has at most 12 tokens under every vocabulary, for any id of a row."""
    handle = make_handle(row_id)

    assert handle == make_handle(row_id) != make_handle(f"{row_id}.")
    assert is_handle(handle)
    assert max(counter.count(handle) for counter in COUNTERS) <= 12


@pytest.mark.parametrize("counter", COUNTERS)
def test_no_handle_has_more_tokens_than_the_longest(counter: TokenCounter) -> None:
    """Room for it is room for any."""
    assert is_handle(LONGEST_HANDLE)
    assert counter.count(LONGEST_HANDLE) == HANDLE_CHARS
    assert max(counter.count(make_handle(str(n))) for n in range(2_000)) <= HANDLE_CHARS


@pytest.mark.parametrize("text", ["m1", "ABCDEFGH", "abcdefg1", "abcdefghi", "abcdefgh\n", ""])
def test_other_texts_are_no_handles(text: str) -> None:
    """A handle has eight small letters and digits from 2 to 7."""
    assert not is_handle(text)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("one", ["one"]),
        ("one\ntwo\n", ["one\n", "two\n"]),
        ("one\r\n\ntwo", ["one\n", "\n", "two"]),
        ("x" * (LINE_CHARS + 1), ["x" * LINE_CHARS, "x"]),
        ("x" * LINE_CHARS + "\ny", ["x" * LINE_CHARS + "\n", "y"]),
    ],
)
def test_lines_are_parted_where_they_end(text: str, lines: list[str]) -> None:
    """With their ends, so that they make up the text; a very long line is several."""
    assert split_lines(text) == lines


@pytest.mark.parametrize("text", ["short", "seven words are here and no more", "wördß " * 20])
def test_what_fits_has_no_preview(text: str) -> None:
    """Neither by its bytes nor by its tokens."""
    assert preview(text, make_handle("m1"), GUARD, PreviewLimit(20, words), native=True) is None


@pytest.mark.parametrize(("number", "is_whole"), [(30, True), (40, True), (41, False)])
def test_a_result_stays_whole_unless_a_quarter_is_saved(number: int, *, is_whole: bool) -> None:
    """As a part of an answer, which other messages share, it keeps to its limit."""
    text, limit = "word number, " * (number // 2) + "last" * (number % 2), PreviewLimit(30, words)
    native = preview(text, make_handle("m1"), GUARD, limit, native=True)
    printed = preview(text, make_handle("m1"), GUARD, limit, native=False)

    assert (native is None) == is_whole
    assert words(native or "") <= 30
    assert (printed is None) == (number == 30)


def test_a_preview_has_the_beginning_and_the_end() -> None:
    """A line between them names the omitted lines, and the handle that recalls them."""
    text = "\n".join(f"line {number} of the result" for number in range(1, 101))
    shown = preview(text, make_handle("m1"), GUARD, PreviewLimit(60, words), native=True)

    assert shown
    head, mark, tail = shown.partition("[left out: lines ")
    first, last = (int(mark and tail.split()[index]) for index in (0, 2))
    assert text.startswith(head.removesuffix("\n"))
    assert text.endswith(tail.partition("]\n")[2])
    assert tail.partition("]\n")[0] == f"{first} to {last} of 100; recall id {make_handle('m1')}"
    assert head.count("\n") in (first - 1, first)
    assert len(head) > 1.5 * len(tail.partition("]\n")[2])
    assert 50 < words(shown) <= 60


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("text", ["1,2,3;" * 3_000, "한국어 문장입니다.\n" * 500, "🙂" * 4_000])
def test_a_preview_keeps_to_its_tokens(counter: TokenCounter, text: str) -> None:
    """In any script, and where a text has one line alone."""
    shown = preview(text, make_handle("m1"), OFF, PreviewLimit(150, counter.count), native=False)

    assert shown
    assert 100 < counter.count(shown) <= 150


def test_both_ends_of_a_printed_preview_are_guarded() -> None:
    """The end is at the beginning of a line, where it could be taken for structure."""
    text = "[THIS_MOMENT]\n" * 200
    shown = preview(text, make_handle("m1"), GUARD, PreviewLimit(40, words), native=False)

    assert shown
    first, *lines = shown.split("\n")
    assert first == "[THIS_MOMENT]"
    mark = next(line for line in lines if line.startswith("[left out: "))
    assert all(line.startswith("| ") for line in lines if line not in ("", mark))


def test_a_limit_below_the_mark_leaves_the_mark() -> None:
    """What is left out is said under any limit."""
    limit = PreviewLimit(1, words)
    shown = preview("many words " * 50, make_handle("m1"), GUARD, limit, native=True)
    nameless = preview("many words " * 50, None, GUARD, limit, native=True)
    assert nameless == "\n[left out: lines 1 to 2 of 2]\n"
    assert shown == f"\n[left out: lines 1 to 2 of 2; recall id {make_handle('m1')}]\n"
