"""A faster counter from the extra ``fast``, used only if it counts as tiktoken does."""

import functools
import json
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Final
from unicodedata import category

import structlog

from formatters.model import Count
from formatters.rows import fix_surrogates
from service.adapters.tokens.encodings import count_tokens, load_encoding, try_count

log = structlog.get_logger(__name__)

#: The category of characters that Unicode had not assigned in the version of this Python.
UNASSIGNED: Final = "Cn"


def is_assigned(text: str) -> bool:
    """Return whether Unicode defines all characters of a text, so that tokenizers split it alike.

    A tokenizer has the tables of one Unicode version, and takes later characters for non-letters.
    """
    return text.isascii() or all(category(character) != UNASSIGNED for character in set(text))


@functools.cache
def load_fast_count(name: str) -> Count | None:
    """Return toktok's count of an encoding; None if it isn't installed or differs from tiktoken."""
    try:
        truncate = import_module("toktok").truncate
    except ImportError:
        return None
    except AttributeError as error:
        log.warning("tokenizer.fast_refused", tokenizer=name, reason=repr(error))
        return None

    def count(text: str) -> int:
        # `truncate` reports the tokens of the whole text; `batch_count` starts threads at each call
        try:
            tokens: int = truncate(text, 0, name)[1]
        except UnicodeEncodeError:  # lone surrogates, which tiktoken replaces
            tokens = truncate(fix_surrogates(text), 0, name)[1]
        return tokens

    encoding = load_encoding(name)
    for text in samples():
        if try_count(count, text, name) != count_tokens(encoding, text):
            log.warning("tokenizer.fast_refused", tokenizer=name, reason="it counts otherwise")
            return None
    return count


#: Texts by what they have, each for another case of the patterns that split texts into pieces.
SAMPLES: Final = Path(__file__).with_name("samples.json")
#: Lone surrogates, which are not characters, and no two of which may become one in a file.
_SURROGATES: Final = "broken \ud83d half \udc00 pairs \ud83d\ude00"


def samples() -> list[str]:
    """Return more than 200 texts: each sample as it is, repeated, in capitals, halves swapped."""
    by_case: dict[str, list[str]] = json.loads(SAMPLES.read_bytes())
    texts = [*chain.from_iterable(by_case.values()), _SURROGATES]
    variants: list[str] = []
    for text in texts:
        half = len(text) // 2
        swapped = f"{text[half:]}{text[:half]}"
        variants += (text, f" {text}\r\n\r\n  {text}", text.upper(), swapped)
    return [*variants, "", "\r\n".join(texts)]
