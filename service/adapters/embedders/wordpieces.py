"""The tokenizer of BERT models without case: words, and pieces of those that it doesn't know."""

import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from typing import Final

#: Google's vocabulary of bert-base-uncased, one piece per line; its licence is in this folder.
VOCABULARY: Final = "wordpieces.txt"
#: Longer words are unknown.
MAX_WORD_CHARS: Final = 100
#: Words whose pieces are remembered.
CACHED_WORDS: Final = 20_000

#: The first and last character of each block of Chinese characters, which are words of their own.
_HAN: Final = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class WordPieces:
    """Splits texts into pieces of words, and returns their numbers."""

    def __init__(self, pieces: Iterator[str] | None = None) -> None:
        """Take a vocabulary, by default the one that comes with the service."""
        listed = files(__package__).joinpath(VOCABULARY).read_text("utf-8").splitlines()
        self._numbers: Mapping[str, int] = {
            piece: number for number, piece in enumerate(pieces or listed)
        }
        self._pieces_of = lru_cache(CACHED_WORDS)(self._split_word)

    def encode(self, text: str, limit: int) -> list[int]:
        """Return the numbers of a text's first pieces, with its start and its end: ``limit``."""
        plain = unicodedata.normalize("NFD", text).translate(_CHARS).lower()
        numbers = (number for word in plain.split() for number in self._pieces_of(word))
        start, end = self._numbers["[CLS]"], self._numbers["[SEP]"]
        return [start, *islice(numbers, limit - 2), end]

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Return the longest known piece that begins the word, then those that continue it."""
        unknown = (self._numbers["[UNK]"],)
        if len(word) > MAX_WORD_CHARS:
            return unknown
        numbers: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            known = (end for end in ends if prefix + word[start:end] in self._numbers)
            end = next(known, None)
            if end is None:
                return unknown
            numbers.append(self._numbers[prefix + word[start:end]])
            start = end
        return tuple(numbers)


class _Chars(dict[int, str]):
    """Normalise characters: accents become nothing, punctuation and Chinese words of their own."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if character.isspace():
            replaced = " "
        elif category == "Mn" or category in {"Cc", "Cf", "Cn", "Co"} or code == 0xFFFD:
            replaced = ""
        elif _is_word(code, category):
            replaced = f" {character} "
        else:
            replaced = character
        self[code] = replaced
        return replaced


def _is_word(code: int, category: str) -> bool:
    # all of ASCII but letters and digits, such as "$" and "+", which are symbols
    is_ascii = code < 0x80 and not chr(code).isalnum()
    return is_ascii or category[0] == "P" or any(low <= code <= high for low, high in _HAN)


_CHARS: Final = _Chars()
