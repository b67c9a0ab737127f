"""Estimate tokens from bytes, for models whose tokenizer is not to be had."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from formatters.rows import well_formed
from service.budget.counting import MESSAGE_OVERHEAD, Estimate

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

    def joined(self, texts: Iterable[str]) -> int:
        """Return the tokens of texts in one piece, rounded once."""
        size = sum(len(well_formed(text).encode()) for text in texts)
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
