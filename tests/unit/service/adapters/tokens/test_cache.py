"""The counts that are remembered."""

from service.adapters.tokens.cache import CACHED_TEXT_CHARS, CountCache


def test_the_cache_is_bounded_by_characters() -> None:
    """What hasn't been used for half of the characters is counted again."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text[0])
        return 25

    cache = CountCache(count, 4 * (100 + CountCache.OVERHEAD))
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

    cache = CountCache(count, 4 * (100 + CountCache.OVERHEAD))
    assert cache["a" * 100] == 25
    assert cache._chars == 100 + CountCache.OVERHEAD


def test_a_very_long_text_is_not_kept() -> None:
    """One text may not push out all others."""
    cache = CountCache(len, 10 * CACHED_TEXT_CHARS)
    assert cache["a" * (CACHED_TEXT_CHARS + 1)] == CACHED_TEXT_CHARS + 1
    assert not cache
