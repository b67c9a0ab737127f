"""Summarise the older part of a conversation; nothing here changes the conversation itself."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Literal, Protocol

from formatters.model import Message, Row
from prompts.summary import create_summary_message
from service.budget.groups import newest_that_fit
from service.conversation.context_config import ContextConfig
from service.conversation.sending import is_summary, message_tokens, prepare, written_by
from service.conversation.shapes import read_messages
from service.conversation.units import RowCost, Unit, read_units
from service.errors import SummarizerError

#: Why a conversation was not compacted: the summarizer failed; the summary was no shorter than the
#: messages; the messages changed in the meantime; earlier summaries take the whole share.
Refusal = Literal["summarizer_failed", "not_smaller", "history_changed", "no_room"]


class Summarizes(Protocol):
    """The one method of `service.ports.services.Summarizer` that is needed."""

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary of at most ``max_tokens``; raises `SummarizerError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The outcome of a compaction; messages are copies, counts are the tokens of messages alone."""

    #: None if none was made.
    summary_message: Row | None
    preserved_messages: list[Row] = field(default_factory=list)
    original_token_count: int
    new_token_count: int
    #: Whether the conversation has the summary now.
    committed: bool = False
    #: Why it doesn't; contexts are still fitted by their strategy.
    refusal: Refusal | None = None
    #: A sentence about a failure, for people.
    detail: str = ""


def plan_compaction(
    messages: Sequence[Row], config: ContextConfig, row_cost: RowCost, now: datetime
) -> "Compaction | None":
    """Return what to summarise of a conversation, or None if that would save nothing."""
    shares = config.compaction
    selection = select(messages, row_cost, int(config.available * shares.recent_preserve_ratio))
    overhead = row_cost(create_summary_message("", generated=now))
    savings = sum(map(row_cost, selection.to_summarize)) - overhead
    if not selection.dialogue or savings <= 1:
        return None
    taken = sum(row_cost(row) for row in messages if is_summary(row))
    share = int(config.available * shares.summary_budget_ratio) - taken - overhead
    return Compaction(messages, selection, row_cost, min(share, savings - 1))


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation, which part of it to summarise, and how long the summary may be."""

    messages: Sequence[Row]
    selection: "SelectedMessages"
    row_cost: RowCost
    #: Most tokens of a summary's text.
    max_tokens: int

    async def summarize(self, summarizer: Summarizes, generated: datetime) -> CompactionResult:
        """Return the conversation with a summary, or why there is none; nothing is committed.

        What a summarizer raises other than `SummarizerError` is passed on.
        """
        if self.max_tokens < 1:
            return self._refuse("no_room")
        try:
            text = await summarizer.summarize(self.selection.dialogue, max_tokens=self.max_tokens)
        except SummarizerError as error:
            return self._refuse("summarizer_failed", error.detail)
        if not text.strip():
            return self._refuse("summarizer_failed", "the summary is empty")
        summary = create_summary_message(text, generated=generated)
        before, removed = self._tokens(self.messages), self._tokens(self.selection.to_summarize)
        tokens = before - removed + self.row_cost(summary)
        if tokens >= before:
            return self._refuse("not_smaller")
        return CompactionResult(
            summary_message=summary,
            preserved_messages=deepcopy(self.selection.to_preserve),
            original_token_count=before,
            new_token_count=tokens,
        )

    def is_answered_by(self, rows: Sequence[Row]) -> bool:
        """Return whether messages that came later answer a call that is to be summarised."""
        calls = {call.id for message in self.selection.dialogue for call in message.tool_calls}
        later = chain.from_iterable(map(read_messages, rows))
        return any(message.tool_call_id in calls for message in later if message.tool_call_id)

    def _tokens(self, rows: Iterable[Row]) -> int:
        return sum(map(self.row_cost, rows))

    def _refuse(self, refusal: Refusal, detail: str = "") -> CompactionResult:
        tokens = self._tokens(self.messages)
        return CompactionResult(
            summary_message=None,
            preserved_messages=[deepcopy(row) for row in self.messages],
            original_token_count=tokens,
            new_token_count=tokens,
            refusal=refusal,
            detail=detail,
        )


@dataclass(frozen=True, slots=True)
class SelectedMessages:
    """A conversation in two parts, each in its order."""

    to_summarize: list[Row]
    to_preserve: list[Row]
    #: The first part repaired, with each call followed by its results.
    dialogue: tuple[Message, ...]


class CountsText(Protocol):
    """The one method of a token counter that is needed."""

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        ...


def select_messages_for_compaction(
    messages: Sequence[Row],
    token_counter: CountsText,
    available_budget: int,
    recent_preserve_ratio: float,
) -> tuple[list[Row], list[Row]]:
    """Return the messages to summarise, and those to preserve.

    The newest messages within the given share of the budget are preserved, at least one; a call
    stays with its results. So are the user's newest message, system messages and earlier
    summaries, which are never summarised again.
    """

    def row_cost(row: Row) -> int:
        return message_tokens(prepare(row), token_counter.count)

    selection = select(messages, row_cost, int(available_budget * recent_preserve_ratio))
    return selection.to_summarize, selection.to_preserve


def select(messages: Sequence[Row], row_cost: RowCost, budget: int) -> SelectedMessages:
    """Split a conversation so that its newest part has at most ``budget`` tokens."""
    units = read_units(messages)
    groups = [group for group in units.groups(row_cost) if not _is_own(units.units[group.index])]
    newest = newest_that_fit(groups, budget) or groups[-1:]
    kept = {group.index for group in newest}
    old = [group for group in groups if group.index not in kept and not group.pinned]
    indexes = _indexes(units.units[group.index] for group in old)
    if old:
        # what repair leaves out is summarised with its neighbours
        start = min(_indexes(units.units[group.index] for group in newest), default=0)
        indexes |= set(range(start)) - _indexes(units.units)
    return SelectedMessages(
        to_summarize=[row for index, row in enumerate(messages) if index in indexes],
        to_preserve=[row for index, row in enumerate(messages) if index not in indexes],
        dialogue=tuple(chain.from_iterable(group.messages for group in old)),
    )


def _is_own(unit: Unit) -> bool:
    """Return whether the system wrote something in a unit."""
    return any(written_by(item.row) is not None for item in unit.items)


def _indexes(units: Iterable[Unit]) -> set[int]:
    return {index for unit in units for item in unit.items for index in item.indexes}
