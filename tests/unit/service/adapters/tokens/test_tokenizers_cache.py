"""The counts that are remembered."""

import sys

from service.adapters.tokens.tokenizers import CACHED_TEXT_CHARS, CountCache


def taken(text: str) -> int:
    """Return the bytes that the cache reckons for a text."""
    return sys.getsizeof(text) + CountCache.OVERHEAD


def test_the_cache_is_bounded_by_bytes() -> None:
    """What hasn't been used for half of the bytes is counted again."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text[0])
        return 25

    cache = CountCache(count, 4 * taken("a" * 100))
    for letter in "abcadef":
        assert cache[letter * 100] == 25
    assert "".join(counted) == "abcdef"
    for letter in "afb":
        assert cache[letter * 100] == 25
    assert "".join(counted) == "abcdefb"


def test_a_text_that_two_threads_count_at_once_is_kept_once() -> None:
    """It doesn't wear the cache out."""

    def count(text: str) -> int:
        cache._keep(text, 25)  # what the other thread does meanwhile
        return 25

    cache = CountCache(count, 4 * taken("a" * 100))
    assert cache["a" * 100] == 25
    assert cache._bytes == taken("a" * 100)


def test_wide_characters_weigh_what_they_take() -> None:
    """Of texts beyond Latin, a quarter as many are kept in the same memory."""
    cache = CountCache(len, 40_000)
    most = 0
    for number in range(1000):
        assert cache["\N{GRINNING FACE}" * 1000 + str(number)]
        most = max(most, sum(taken(text) for text in (*cache, *cache._older)))
    assert 20_000 < most <= 40_000 + taken("\N{GRINNING FACE}" * 1003)


def test_a_very_long_text_is_not_kept() -> None:
    """One text may not push out all others."""
    cache = CountCache(len, 10 * CACHED_TEXT_CHARS)
    assert cache["a" * (CACHED_TEXT_CHARS + 1)] == CACHED_TEXT_CHARS + 1
    assert not cache
