"""Counts tokens as tiktoken does, offline, whatever the text."""

import asyncio
import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import FunctionType
from typing import Any, Protocol

import structlog

from formatters.model import Count
from service.adapters.tokens.cache import CountCache
from service.adapters.tokens.fast import is_assigned, load_fast_count
from service.adapters.tokens.samples import samples
from service.adapters.tokens.vocabularies import PACKAGED, VocabularyError, read_ranks
from service.budget.estimates import RaisedTokenCounter, SimpleTokenCounter, read_counter_name
from service.budget.heuristic import HeuristicTokenCounter
from service.budget.message_tokens import AnyMessage, messages_tokens
from service.ports import TokenCounter

log = structlog.get_logger()

#: Encodings that differ from another one in special tokens only, and so count alike.
ALIASES = {"o200k_harmony": "o200k_base"}

#: Estimates by bytes, for models that have no tokenizer here.
HEURISTIC = HeuristicTokenCounter()

#: Bytes of text that a counter remembers the counts of at most; half of them at least.
CACHE_BYTES = 24_000_000

#: From here on, a run of blanks is counted without tiktoken's pattern, which fails near 1,000,000.
LONG_BLANKS = 100_000


class TiktokenCounter:
    """Counts the tokens of one of tiktoken's encodings; can be used by several threads.

    Text that spells a special token is counted as text, and a lone surrogate as U+FFFD. Raises
    `VocabularyError` where the encoding cannot be loaded.
    """

    exact = True

    def __init__(self, encoding_name: str = "cl100k_base") -> None:
        self.name = ALIASES.get(encoding_name, encoding_name)
        self._encoding = load_encoding(self.name)
        self._fast = fast_count(self.name)
        self._counts = CountCache(self._tokens, CACHE_BYTES)

    def count(self, text: str) -> int:
        """Return the number of tokens, as tiktoken or its checked stand-in finds it.

        Where tiktoken itself fails, which no known text makes it do, the number of UTF-8 bytes
        stands in: there are never more tokens than that.
        """
        return self._counts[text]

    def count_messages(self, messages: Iterable[AnyMessage]) -> int:
        """Return the tokens of messages, 4 for each and those of what it says and calls."""
        return messages_tokens(messages, self.count)

    def _tokens(self, text: str) -> int:
        quick = self._fast if is_assigned(text) else None
        fast = _attempt(quick, text, self.name) if quick else None
        tokens = _attempt(self._exact, text, self.name) if fast is None else fast
        return len(text.encode("utf-8", "surrogatepass")) if tokens is None else tokens

    def _exact(self, text: str) -> int:
        return _count(self._encoding, text)


class TiktokenTokenizers:
    """Finds counters by tiktoken's names; each vocabulary is loaded once per process."""

    def __init__(self) -> None:
        self._counters: dict[str, TokenCounter] = {}
        self._lock = threading.Lock()

    def load(self, *names: str) -> None:
        """Load the named vocabularies, or all.

        Takes up to half a second of CPU each: call it in a thread, before requests come.
        """
        for name in names or PACKAGED:
            self.counter(name)

    def counter(self, tokenizer: str) -> TokenCounter:
        """Return the counter; one that estimates where the tokenizer is not to be had.

        ``o200k_base*1.25`` is an estimate: the counts of ``o200k_base``, raised by a quarter.
        """
        base, factor = read_counter_name(tokenizer)
        if factor != 1:
            return RaisedTokenCounter(self.counter(base), factor)
        name = ALIASES.get(tokenizer, tokenizer)
        if name == HEURISTIC.name:
            return HEURISTIC
        if name not in PACKAGED:
            return SimpleTokenCounter()
        with self._lock:
            if name not in self._counters:
                self._counters[name] = get_token_counter(encoding_name=name)
            return self._counters[name]


def get_token_counter(
    use_tiktoken: bool = True, *, encoding_name: str = "o200k_base"
) -> TokenCounter:
    """Return an exact counter, or one that estimates where that is asked for or all there is."""
    if not use_tiktoken:
        return SimpleTokenCounter()
    try:
        return TiktokenCounter(encoding_name)
    except VocabularyError as error:
        log.warning("tokenizer.unavailable", tokenizer=encoding_name, reason=error.detail)
        return SimpleTokenCounter()


# --- encodings -------------------------------------------------------------------------------


class Encoding(Protocol):
    """What is used of a ``tiktoken.Encoding``."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the tokens; special tokens are read as text."""
        ...

    def _encode_single_piece(self, text_or_bytes: str | bytes) -> list[int]: ...


_loading = threading.Lock()


def load_encoding(name: str) -> Encoding:
    """Return tiktoken's encoding of that name; raises `VocabularyError` where it can't be had."""
    with _loading:  # the cache alone would let two threads build the same encoding
        return _built(name)


@functools.cache
def _built(name: str) -> Encoding:
    if name not in PACKAGED:
        raise VocabularyError(f"no vocabulary of the name {name!r} is at hand")
    try:  # imported here: commands that count nothing don't wait for it
        tiktoken = import_module("tiktoken")
        openai_public = import_module("tiktoken_ext.openai_public")
    except ImportError as error:
        raise VocabularyError(f"tiktoken cannot be loaded: {error}") from error

    def ranks(_url: str, expected_hash: str) -> dict[bytes, int]:
        return read_ranks(name, expected_hash)

    # Pattern and special tokens are tiktoken's own, from its own definition; that definition is
    # run with our reader in place of the one that would download.
    names = {**vars(openai_public), "load_tiktoken_bpe": ranks}
    try:
        definition = openai_public.ENCODING_CONSTRUCTORS[name]
        offline: Callable[[], Any] = FunctionType(definition.__code__, names)
        encoding: Encoding = tiktoken.Encoding(**offline())
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise VocabularyError(f"tiktoken doesn't know how to build {name}: {error!r}") from error
    return encoding


def fast_count(name: str) -> Count | None:
    """Return a faster count of an encoding, if there is one that agrees with tiktoken's."""
    with _loading:
        return _checked(name)


@functools.cache
def _checked(name: str) -> Count | None:
    count, encoding = load_fast_count(name), _built(name)
    if count is None:
        return None
    for text in samples():
        if _attempt(count, text, name) != _count(encoding, text):
            log.warning("tokenizer.fast_refused", tokenizer=name, reason="it counts otherwise")
            return None
    return count


# --- counting --------------------------------------------------------------------------------

# Blanks as tiktoken's patterns know them, line ends left out; Python's \s has four more. Shorter
# runs are passed over by the engine, without a match for every gap between two words.
_BLANKS = re.compile(r"[^\S\r\n\x1c-\x1f]{64,}")


def _attempt(count: Count, text: str, name: str) -> int | None:
    """Count, or return None where the counter itself fails."""
    try:
        return count(text)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException:  # a panic of Rust is no Exception
        log.exception("tokenizer.failed", tokenizer=name, characters=len(text))
        return None


def _count(encoding: Encoding, text: str) -> int:
    tokens = start = 0
    for first, last in _long_blanks(text):
        tokens += len(encoding.encode_ordinary(text[start:first]))
        # one piece of the pattern, which is therefore not needed
        tokens += len(encoding._encode_single_piece(text[first:last]))  # noqa: SLF001 - as above
        start = last
    return tokens + len(encoding.encode_ordinary(text[start:]))


def _long_blanks(text: str) -> Iterator[tuple[int, int]]:
    """Yield where long runs of blanks stand that both patterns take in one piece.

    A run before a line end belongs to the piece of that line end, which is matched without
    backtracking. Of another run, the last blank belongs to what follows.
    """
    if len(text) < LONG_BLANKS:
        return
    for run in _BLANKS.finditer(text):
        first, last = run.span()
        if last - first >= LONG_BLANKS and text[last : last + 1] not in {"\r", "\n"}:
            yield first, last if last == len(text) else last - 1
