"""The counts that are remembered."""

from service.adapters.count_cache import CACHED_TEXT_CHARS, CountCache


def test_the_cache_is_bounded_by_characters() -> None:
    """The texts used longest ago leave the cache once it holds too many characters."""
    cache = CountCache(3 * (100 + CountCache.OVERHEAD))
    for letter in "abc":
        cache.put(letter * 100, 1)
    assert cache.get("a" * 100) == 1
    cache.put("d" * 100, 2)
    assert cache.get("b" * 100) is None
    assert [cache.get(letter * 100) for letter in "acd"] == [1, 1, 2]


def test_a_text_put_twice_counts_once() -> None:
    """Two threads that count the same text at once don't wear the cache out."""
    cache = CountCache(300)
    for _ in range(5):
        cache.put("a" * 100, 25)
    assert cache.get("a" * 100) == 25


def test_a_very_long_text_is_not_kept() -> None:
    """One text may not push out all others."""
    cache = CountCache(10 * CACHED_TEXT_CHARS)
    cache.put("a" * (CACHED_TEXT_CHARS + 1), 1)
    assert cache.get("a" * (CACHED_TEXT_CHARS + 1)) is None
