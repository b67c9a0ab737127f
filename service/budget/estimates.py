"""Estimate tokens from bytes, for models whose tokenizer is not to be had."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from formatters.rows import fix_surrogates
from service.budget.counting import MESSAGE_OVERHEAD, AnyMessage, Estimate, messages_tokens

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

    def count_joined(self, texts: Iterable[str]) -> int:
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


#: Tokens of a block whose text says nothing of its cost (neuron-context's table).
FLAT_TOKENS: Final[Mapping[str, int]] = {"image": 300, "document": 500}

#: Where the text of a block stands, by the block's type.
TEXT_KEYS: Final[Mapping[str, str]] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "data",
    "compaction": "content",
}


@dataclass(frozen=True, slots=True)
class HeuristicTokenCounter(Estimate):
    """Takes so many bytes of UTF-8 for a token, rounded up for each text by itself.

    The rule and the ratio of 4 are neuron-context's.
    """

    chars_per_token: float = 4.0
    name: str = "heuristic"
    exact: bool = False

    def __post_init__(self) -> None:
        if not self.chars_per_token > 0:
            raise ValueError("chars_per_token has to be more than 0")

    @classmethod
    def with_ratio(cls, chars_per_token: float) -> Self:
        """Return a counter with another ratio."""
        return cls(chars_per_token)

    def count_joined(self, texts: Iterable[str]) -> int:
        """Return the tokens of texts in one piece, rounded once."""
        size = sum(len(fix_surrogates(text).encode()) for text in texts)
        return math.ceil(size / self.chars_per_token)

    def estimate_text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.count(text)

    def estimate_messages(self, messages: Sequence[Mapping[str, object]]) -> int:
        """Return the tokens of messages, 4 for each and those of its ``content``.

        Content is a text, or a list of blocks: text, thinking, redacted_thinking, tool_use,
        tool_result, image, document, compaction. Others count nothing.
        """
        return sum(MESSAGE_OVERHEAD + self._content(m.get("content")) for m in messages)

    def estimate_tools(self, tools: Sequence[Mapping[str, object]]) -> int:
        """Return the tokens of tools: ``name``, ``description`` and ``input_schema`` of each."""
        return sum(
            self._text(tool.get("name"))
            + self._text(tool.get("description"))
            + self._json(tool.get("input_schema", {}))
            for tool in tools
        )

    def _content(self, content: object) -> int:
        if isinstance(content, Sequence) and not isinstance(content, str | bytes):
            return sum(self._block(block) for block in content if isinstance(block, Mapping))
        return self._text(content)

    def _block(self, block: Mapping[str, object]) -> int:
        kind = str(block.get("type"))
        if kind in FLAT_TOKENS:
            return FLAT_TOKENS[kind]
        if kind == "tool_use":
            return self._text(block.get("name")) + self._json(block.get("input", {}))
        if kind == "tool_result":
            return self._content(block.get("content"))
        return self._text(block.get(TEXT_KEYS.get(kind, "")))

    def _json(self, value: object) -> int:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        return self.count(text)

    def _text(self, value: object) -> int:
        return self.count(value) if isinstance(value, str) else 0
