"""Counters that estimate, where a model's own tokenizer is not to be had."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from service.budget.counting import Estimate
from service.budget.message_tokens import AnyMessage, messages_tokens

#: ``o200k_base*1.25``: the counts of a tokenizer, raised by a factor.
_RAISED: Final = re.compile(r"(\w+)\*(\d+(?:\.\d+)?)")

#: Units of UTF-16 that REPLOID takes for a token.
UNITS_PER_TOKEN: Final = 4


class SimpleTokenCounter:
    """Estimates tokens as a quarter of the characters; the rule is NEXUS3's."""

    name = "simple"
    exact = False

    def count(self, text: str) -> int:
        """Return 0 for no text, else at least 1."""
        return max(1, len(text) // 4) if text else 0

    def count_messages(self, messages: Iterable[AnyMessage]) -> int:
        """Return the tokens of messages, 4 for each and those of what it says and calls."""
        return messages_tokens(messages, self.count)


class Counter(Protocol):
    """What an estimate starts from."""

    @property
    def name(self) -> str:
        """The tokenizer's name."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        ...


@dataclass(frozen=True, slots=True)
class RaisedTokenCounter(Estimate):
    """Multiplies another counter's counts, and rounds each up, so that it rather takes too many."""

    base: Counter
    factor: float
    exact: bool = False

    @property
    def name(self) -> str:
        """Return what is counted with, and by how much that is raised: ``o200k_base*1.25``."""
        return counter_name(self.base.name, self.factor)

    def joined(self, texts: Iterable[str]) -> int:
        """Return the tokens of texts in one piece, where the base's counts add up."""
        # without the rounding, the 110.00000000000001 of 100 * 1.1 would be 111
        return math.ceil(round(sum(map(self.base.count, texts)) * self.factor, 6))

    def count_messages(self, messages: Iterable[AnyMessage]) -> int:
        """Return the tokens of messages, 4 for each and those of what it says and calls."""
        return messages_tokens(messages, self.count)


def counter_name(tokenizer: str, factor: float) -> str:
    """Return the name of a tokenizer whose counts are multiplied by a factor."""
    return tokenizer if factor == 1 else f"{tokenizer}*{factor:g}"


def read_counter_name(name: str) -> tuple[str, float]:
    """Return the tokenizer and the factor of a name; a factor below 1 is none."""
    raised = _RAISED.fullmatch(name)
    if raised is None or float(raised[2]) < 1:
        return name, 1.0
    return raised[1], float(raised[2])


def estimate_tokens(content: str | Mapping[str, object]) -> int:
    """Return REPLOID's estimate: a quarter of a text's UTF-16 units, rounded up.

    An item of history is taken as its whole JSON without blanks, role and keys included.
    """
    text = content if isinstance(content, str) else _json(content)
    return math.ceil(len(text.encode("utf-16-le", "surrogatepass")) / 2 / UNITS_PER_TOKEN)


def _json(item: Mapping[str, object]) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), default=str)
