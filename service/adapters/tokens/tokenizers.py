"""Token counters by the names of tiktoken's encodings, exact or estimated."""

import sys
import threading
from functools import partial
from operator import itemgetter
from typing import Final

import structlog
from cachetools import FIFOCache

from service.adapters.tokens.encodings import (
    PACKAGED,
    VocabularyError,
    count_tokens,
    load_encoding,
    try_count,
)
from service.adapters.tokens.fast import is_assigned, load_fast_count
from service.budget.counting import MessageCounts
from service.budget.estimates import (
    HeuristicTokenCounter,
    RaisedTokenCounter,
    SimpleTokenCounter,
    read_counter_name,
)
from service.errors import shown
from service.ports.services import TokenCounter

log = structlog.get_logger(__name__)

#: Encodings that differ from another one only in special tokens, and so count alike.
ALIASES: Final = {"o200k_harmony": "o200k_base"}

#: Estimates by bytes, for models without a tokenizer here.
HEURISTIC: Final = HeuristicTokenCounter()

#: The memory that a counter's cache may take.
CACHE_BYTES = 24_000_000
#: The bytes of a cache entry in addition to its text, measured for a full cache.
ENTRY_BYTES: Final = 400
#: Longer texts, in characters, are not cached.
CACHED_TEXT_CHARS: Final = 200_000


#: The names of all tokenizers; the last four are tiktoken's, in place of which estimates count.
NAMES: Final = (
    *(*PACKAGED, *ALIASES, HEURISTIC.name, SimpleTokenCounter.name),
    *("gpt2", "r50k_base", "p50k_base", "p50k_edit"),
)


class TiktokenTokenizers:
    """Finds counters by tiktoken's names; each vocabulary is loaded once per process."""

    def __init__(self) -> None:
        self._counters: dict[str, TokenCounter] = {}
        self._lock = threading.RLock()

    def load(self, *names: str) -> None:
        """Load the named vocabularies.

        Takes up to half a second of CPU each: call it in a thread, before requests arrive.
        """
        for name in names:
            self.counter(name)

    def counter(self, tokenizer: str) -> TokenCounter:
        """Return the counter of a tokenizer, or one that estimates if it is not available.

        ``o200k_base*1.25`` is an estimate: the counts of ``o200k_base``, raised by a quarter.
        """
        with self._lock:
            if tokenizer not in self._counters:
                self._counters[tokenizer] = self._open(tokenizer)
            return self._counters[tokenizer]

    def _open(self, tokenizer: str) -> TokenCounter:
        base, factor = read_counter_name(tokenizer)
        if factor != 1:
            return RaisedTokenCounter(self.counter(base), factor)
        if tokenizer in ALIASES:
            return self.counter(ALIASES[tokenizer])
        if tokenizer == HEURISTIC.name:
            return HEURISTIC
        return get_token_counter(tokenizer in PACKAGED, encoding_name=tokenizer)


def get_token_counter(
    use_tiktoken: bool = True, *, encoding_name: str = "o200k_base"
) -> TokenCounter:
    """Return an exact counter, or one that estimates if requested or if tiktoken can't be used."""
    if not isinstance(use_tiktoken, bool):
        fix = "encoding_name names an encoding, and a model has none here"
        raise TypeError(f"use_tiktoken is true or false, not {shown(use_tiktoken)}; {fix}")
    if not use_tiktoken:
        return SimpleTokenCounter()
    try:
        return TiktokenCounter(encoding_name)
    except VocabularyError as error:
        log.warning("tokenizer.unavailable", tokenizer=encoding_name, reason=error.detail)
        return SimpleTokenCounter()


class TiktokenCounter(MessageCounts):
    """Counts tokens as one of tiktoken's encodings does; threads may share it.

    Special tokens in a text are counted as text, and a lone surrogate as U+FFFD. Raises
    `VocabularyError` if the encoding cannot be loaded.
    """

    exact = True

    def __init__(self, encoding_name: str = "cl100k_base") -> None:
        self.name = ALIASES.get(encoding_name, encoding_name)
        self._encoding = load_encoding(self.name)
        self._fast = load_fast_count(self.name)
        # Tokens and size by text. First in, first out: reading changes nothing, so it needs no
        # lock and takes 60 ns, where an LRUCache behind a lock takes 300 to 700 ns.
        self._cache: FIFOCache[str, tuple[int, int]] = FIFOCache(CACHE_BYTES, itemgetter(1))
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        """Return the number of tokens.

        If tiktoken itself fails, which no known text causes, this is the number of UTF-8 bytes:
        there are never more tokens than bytes.
        """
        try:
            return self._cache[text][0]
        except KeyError:
            tokens = self._count_uncached(text)
        if len(text) <= CACHED_TEXT_CHARS:
            with self._lock:
                self._cache[text] = tokens, sys.getsizeof(text) + ENTRY_BYTES
        return tokens

    def _count_uncached(self, text: str) -> int:
        tokens = None
        if self._fast and is_assigned(text):
            tokens = try_count(self._fast, text, self.name)
        if tokens is None:
            tokens = try_count(partial(count_tokens, self._encoding), text, self.name)
        return len(text.encode("utf-8", "surrogatepass")) if tokens is None else tokens
