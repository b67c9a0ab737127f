"""Counts tokens as tiktoken does, offline, whatever the text."""

import asyncio
import functools
import re
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from types import FunctionType
from typing import Any, Protocol

import structlog

from service.adapters.vocabularies import PACKAGED, VocabularyError, read_ranks
from service.budget.heuristic import HeuristicTokenCounter
from service.ports import TokenCounter

log = structlog.get_logger()

#: Encodings that differ from another one in special tokens only, and so count alike.
ALIASES = {"o200k_harmony": "o200k_base"}

#: Estimates by bytes, for models that have no tokenizer here.
HEURISTIC = HeuristicTokenCounter()

#: Characters of text that a counter remembers the counts of at most; half of them at least.
CACHE_CHARS = 24_000_000

#: A longer text, in characters, is counted each time.
CACHED_TEXT_CHARS = 200_000

#: From here on, a run of blanks is counted without tiktoken's pattern, which fails near 1,000,000.
LONG_BLANKS = 100_000


class SimpleTokenCounter:
    """Estimates tokens as a quarter of the characters."""

    name = "simple"
    exact = False

    def count(self, text: str) -> int:
        """Return 0 for no text, else at least 1."""
        return max(1, len(text) // 4) if text else 0


class TiktokenCounter:
    """Counts the tokens of one of tiktoken's encodings; can be used by several threads.

    Text that spells a special token is counted as text, and a lone surrogate as U+FFFD. Raises
    `VocabularyError` where the encoding cannot be loaded.
    """

    exact = True

    def __init__(self, encoding_name: str = "cl100k_base") -> None:
        self.name = ALIASES.get(encoding_name, encoding_name)
        self._encoding = load_encoding(self.name)
        self._counts = _Counts(self._tokens, CACHE_CHARS)

    def count(self, text: str) -> int:
        """Return the number of tokens.

        Where tiktoken itself fails, which no known text makes it do, the number of UTF-8 bytes
        stands in: there are never more tokens than that.
        """
        return self._counts[text]

    def _tokens(self, text: str) -> int:
        try:
            return _count(self._encoding, text)
        except (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException:  # a panic of tiktoken's Rust is no Exception
            log.exception("tokenizer.failed", tokenizer=self.name, characters=len(text))
            return len(text.encode("utf-8", "surrogatepass"))


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
        """Return the counter; one that estimates where the tokenizer is not to be had."""
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
    definition = openai_public.ENCODING_CONSTRUCTORS[name]
    names = {**vars(openai_public), "load_tiktoken_bpe": ranks}
    offline: Callable[[], Any] = FunctionType(definition.__code__, names)
    encoding: Encoding = tiktoken.Encoding(**offline())
    return encoding


# --- counting --------------------------------------------------------------------------------

# Blanks as tiktoken's patterns know them, line ends left out; Python's \s has four more. Shorter
# runs are passed over by the engine, without a match for every gap between two words.
_BLANKS = re.compile(r"[^\S\r\n\x1c-\x1f]{64,}")


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


class _Counts(dict[str, int]):
    """The counts of texts; one that is missing is counted, and remembered for a while.

    Texts are kept in two generations: once the recent one has half of the characters, it becomes
    the older one, and what was in that is forgotten. So a known text is found without a lock.
    """

    #: What an entry takes besides its text, in characters.
    OVERHEAD = 128

    def __init__(self, count: Callable[[str], int], max_chars: int) -> None:
        super().__init__()
        self._count = count
        self._max_chars = max_chars
        self._chars = 0
        self._older: dict[str, int] = {}
        self._lock = threading.Lock()

    def __missing__(self, text: str) -> int:
        known = self._older.get(text)
        tokens = self._count(text) if known is None else known
        if len(text) <= CACHED_TEXT_CHARS:
            self._remember(text, tokens)
        return tokens

    def _remember(self, text: str, tokens: int) -> None:
        with self._lock:
            if text in self:  # another thread has counted it too
                return
            self[text] = tokens
            self._chars += len(text) + self.OVERHEAD
            if self._chars > self._max_chars // 2:
                self._older = dict(self)
                self.clear()
                self._chars = 0
