"""Estimate tokens, for models whose tokenizer is not available."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from formatters.rows import fix_surrogates
from service.budget.counting import MESSAGE_OVERHEAD, Estimate, MessageCounts
from service.ports.services import TokenCounter

#: The counts of a tokenizer, raised by a factor: ``o200k_base*1.25``.
_RAISED: Final = re.compile(r"(\w+)\*(\d+(?:\.\d+)?)")

#: UTF-16 code units per token, by REPLOID's rule.
UNITS_PER_TOKEN: Final = 4


class SimpleTokenCounter(MessageCounts):
    """Estimates tokens as a quarter of the characters, by NEXUS3's rule."""

    name = "simple"
    exact = False

    def count(self, text: str) -> int:
        """Return 0 for an empty text, else at least 1."""
        return max(1, len(text) // 4) if text else 0


@dataclass(frozen=True, slots=True)
class RaisedTokenCounter(Estimate):
    """Multiplies the counts of another counter and rounds up, so as not to count too few."""

    base: TokenCounter
    factor: float
    exact: bool = False

    @property
    def name(self) -> str:
        """Return the name of the base with the factor: ``o200k_base*1.25``."""
        return counter_name(self.base.name, self.factor)

    def size(self, text: str) -> int:
        """Return the tokens of the other counter."""
        return self.base.count(text)

    def tokens(self, size: int) -> int:
        """Return the product, rounded up."""
        # rounded first, since 100 * 1.1 is 110.00000000000001, and would be 111
        return math.ceil(round(size * self.factor, 6))


def counter_name(tokenizer: str, factor: float) -> str:
    """Return the name of a tokenizer whose counts are multiplied by a factor."""
    return tokenizer if factor == 1 else f"{tokenizer}*{factor:g}"


def read_counter_name(name: str) -> tuple[str, float]:
    """Return tokenizer and factor; a name with a factor below 1 is taken as a tokenizer's."""
    raised = _RAISED.fullmatch(name)
    if raised is None or float(raised[2]) < 1:
        return name, 1.0
    return raised[1], float(raised[2])


def estimate_tokens(content: str | Mapping[str, object]) -> int:
    """Return REPLOID's estimate: a quarter of a text's UTF-16 units, rounded up.

    For an item of history, its whole JSON without blanks counts, role and keys included.
    """
    text = content if isinstance(content, str) else _json(content)
    if text.isascii():
        return -(-len(text) // UNITS_PER_TOKEN)
    return math.ceil(len(text.encode("utf-16-le", "surrogatepass")) / 2 / UNITS_PER_TOKEN)


#: Created once: `json.dumps` creates one for each value.
_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


#: Tokens of content blocks whose text doesn't reflect their cost (neuron-context's table).
FLAT_TOKENS: Final[Mapping[str, int]] = {"image": 300, "image_url": 300, "document": 500}

#: The key of a content block's text, by its type.
TEXT_KEYS: Final[Mapping[str, str]] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "data",
    "compaction": "content",
}


@dataclass(frozen=True, slots=True)
class HeuristicTokenCounter(Estimate):
    """Divides the UTF-8 bytes of each text by a ratio, and rounds up.

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

    def size(self, text: str) -> int:
        """Return the bytes of a text in UTF-8."""
        return len(fix_surrogates(text).encode())

    def tokens(self, size: int) -> int:
        """Return the tokens of a number of bytes, rounded up."""
        return math.ceil(size / self.chars_per_token)

    def estimate_text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.count(text)

    def estimate_messages(self, messages: Sequence[Mapping[str, object]]) -> int:
        """Return the tokens of messages: 4 each, and those of ``content``.

        Content is a text or a list of blocks: text, thinking, redacted_thinking, tool_use,
        tool_result, image, image_url, document, compaction. Other blocks count as 0.
        """
        return sum(MESSAGE_OVERHEAD + self._content(m.get("content")) for m in messages)

    def estimate_tools(self, tools: Sequence[Mapping[str, object]]) -> int:
        """Return the tokens of tools: ``name``, ``description`` and ``input_schema`` of each."""
        return sum(
            self._text(tool.get("name"))
            + self._text(tool.get("description"))
            + self.count(_json(tool.get("input_schema", {})))
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
            given = block.get("input", {})
            # arguments that are no JSON object are counted as the text that they are
            written = given if isinstance(given, str) else _json(given)
            return self._text(block.get("name")) + self.count(written)
        if kind == "tool_result":
            return self._content(block.get("content"))
        return self._text(block.get(TEXT_KEYS.get(kind, "")))

    def _text(self, value: object) -> int:
        return self.count(value) if isinstance(value, str) else 0
