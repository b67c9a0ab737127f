"""Have the older part of a conversation summarised; nothing here changes the conversation."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from formatters.model import Message, Row
from prompts.summary import create_summary_message
from service.conversation.context_config import ContextConfig
from service.conversation.selection import Selection, select
from service.conversation.sending import is_summary
from service.conversation.shapes import shape_of
from service.conversation.units import Price
from service.errors import SummarizerError

#: Why there is no summary in place of messages: the summariser failed; its text was no shorter than
#: what it stands for; the messages changed meanwhile; summaries have their whole share already.
Refusal = Literal["summarizer_failed", "not_smaller", "history_changed", "no_room"]


class Summarizes(Protocol):
    """All that is asked of a `service.ports.services.Summarizer`."""

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary of so many tokens at most; raises `SummarizerError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What became of a compaction; messages are copies, counts are the tokens of messages alone."""

    #: None where none was made.
    summary_message: Row | None
    preserved_messages: list[Row] = field(default_factory=list)
    original_token_count: int
    new_token_count: int
    #: True where the conversation has the summary now.
    committed: bool = False
    #: Why it has not; the strategy that fits contexts serves on.
    refusal: Refusal | None = None
    #: A sentence about a failure, for a person.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is to be summarised, and what the summary may cost."""

    messages: Sequence[Row]
    selection: Selection
    price: Price
    #: Tokens of a summary's text at most.
    room: int

    @property
    def tokens(self) -> int:
        """Return what all messages cost before it."""
        return sum(map(self.price, self.messages))

    @property
    def saved(self) -> int:
        """Return what the summarised messages cost."""
        return sum(map(self.price, self.selection.to_summarize))

    def is_answered_by(self, rows: Sequence[Row]) -> bool:
        """Tell whether messages that came later answer a call that is to be summarised."""
        calls = {call.id for message in self.selection.said for call in message.tool_calls}
        said = (message for row in rows for message in shape_of(row).read(row, ""))
        return any(message.tool_call_id in calls for message in said if message.tool_call_id)

    async def summarized(self, summarizer: Summarizes, generated: datetime) -> CompactionResult:
        """Return the conversation with a summary, not committed yet, or why there is none.

        Whatever a summariser raises but `SummarizerError` comes through.
        """
        if self.room < 1:
            return self._refused("no_room")
        said = self.selection.said
        try:
            text = await summarizer.summarize(said, max_tokens=self.room)
        except SummarizerError as error:
            return self._refused("summarizer_failed", error.detail)
        if not text.strip():
            return self._refused("summarizer_failed", "the summary is empty")
        summary = create_summary_message(text, generated=generated)
        tokens = self.tokens - self.saved + self.price(summary)
        if tokens >= self.tokens:
            return self._refused("not_smaller")
        return CompactionResult(
            summary_message=summary,
            preserved_messages=deepcopy(self.selection.to_preserve),
            original_token_count=self.tokens,
            new_token_count=tokens,
        )

    def _refused(self, refusal: Refusal, detail: str = "") -> CompactionResult:
        tokens = self.tokens
        return CompactionResult(
            summary_message=None,
            preserved_messages=[deepcopy(row) for row in self.messages],
            original_token_count=tokens,
            new_token_count=tokens,
            refusal=refusal,
            detail=detail,
        )


def plan_compaction(
    messages: Sequence[Row], config: ContextConfig, price: Price, now: datetime
) -> Compaction | None:
    """Return what of a conversation is to be summarised; None where that would gain nothing."""
    shares = config.compaction
    selection = select(messages, price, int(config.available * shares.recent_preserve_ratio))
    frame = price(create_summary_message("", generated=now))
    gain = sum(map(price, selection.to_summarize)) - frame
    if not selection.said or gain <= 1:
        return None
    taken = sum(price(row) for row in messages if is_summary(row))
    share = int(config.available * shares.summary_budget_ratio) - taken - frame
    return Compaction(messages, selection, price, min(share, gain - 1))
