"""Counts with toktok, which is faster than tiktoken; where it comes from the extra ``fast``."""

from importlib import import_module
from typing import Final
from unicodedata import category

import structlog

from formatters.model import Count
from formatters.rows import well_formed

log = structlog.get_logger()

#: The category of characters that Unicode has not assigned, as far as this Python knows.
UNASSIGNED: Final = "Cn"


def is_assigned(text: str) -> bool:
    """Tell whether Unicode has all characters of a text, so that tokenizers cut it alike.

    Each has the tables of some version of Unicode, and takes what came later for no letter.
    """
    return text.isascii() or all(category(character) != UNASSIGNED for character in set(text))


def load_fast_count(name: str) -> Count | None:
    """Return toktok's count of an encoding, None where it isn't installed or can't be used.

    It has yet to be shown that it counts as tiktoken does. Counting a single text by its public
    function starts a pool of threads each time, so the tokenizer behind that is asked; its name
    is private, which the pinned version and the check at the start allow for.
    """
    try:
        module = import_module("toktok")
    except ImportError:
        return None
    try:
        count: Count = module._encoding(name).count  # noqa: SLF001 - as above
    except (AttributeError, LookupError, TypeError, ValueError, OSError) as error:
        log.warning("tokenizer.fast_refused", tokenizer=name, reason=repr(error))
        return None

    def count_repaired(text: str) -> int:
        try:
            return count(text)
        except UnicodeEncodeError:  # a surrogate that stands alone, which tiktoken repairs
            return count(well_formed(text))

    return count_repaired
