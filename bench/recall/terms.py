"""What the baselines search by: Snowball's English stems, and pairs of characters without blanks.

But for the list of stop words they are their own, so that a baseline stays what it is when the
product's terms change.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from Stemmer import Stemmer

from service.recall.terms import DEFAULT, STOP_WORDS

_WORD: Final = re.compile(r"[^\W_]+")
#: Characters of scripts that are written without blanks, or with endings that stick to words.
_UNSPACED: Final = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_RUN: Final = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_STEMMER: Final = Stemmer("english")


@lru_cache(maxsize=1 << 16)
def terms(text: str) -> Counter[str]:
    """Return the terms of a text, each with how often it is there."""
    return Counter(_terms(unicodedata.normalize("NFKC", text).lower()))


def _terms(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        for run in _RUN.findall(word):
            if re.match(f"[{_UNSPACED}]", run):
                yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
            elif run not in STOP_WORDS[DEFAULT]:
                yield _STEMMER.stemWord(run)
