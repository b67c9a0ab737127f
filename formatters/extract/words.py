"""The words of a sentence, as far as they can be told in any language."""

import re
import unicodedata
from itertools import pairwise
from typing import Final

#: Scripts that put no blanks between words: kana, Chinese characters, Thai, Lao, Khmer, Burmese.
_SOLID: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORD: Final = re.compile(rf"[{_SOLID}]++|(?:(?![{_SOLID}])\w)++(?:['’](?:(?![{_SOLID}])\w)++)*+")
_IS_SOLID: Final = re.compile(rf"[{_SOLID}]")

#: Letters of a word that count; of longer ones the rest is taken for an ending.
STEM: Final = 6


def words(text: str) -> list[str]:
    """Return the words of a text, folded and cut to stems; without blanks, pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).lower()):
        if not _IS_SOLID.match(word):
            found.append(word[:STEM])
        elif len(word) == 1:
            found.append(word)
        else:
            found += (first + second for first, second in pairwise(word))
    return found
