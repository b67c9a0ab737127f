"""Summarise the older part of a conversation; nothing here changes the conversation itself."""

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from inspect import isawaitable
from itertools import chain
from typing import Final, Literal

from formatters.model import Message, Row
from formatters.rows import as_mapping
from prompts.summary import create_summary_message, read_summary
from prompts.summary_prompt import format_summary_prompt, transcribe
from service.budget.groups import Group, newest_that_fit
from service.budget.strategies.summarization import MIN_TOKENS, allowance
from service.conversation.messages import (
    NUMBER,
    SUMMARY,
    is_summary,
    summary_number,
    with_mark,
    written_by,
)
from service.conversation.sending import RowCosts
from service.conversation.shapes import is_system, read_messages
from service.conversation.units import RowCost, Units, dropped_groups, pin_newest, read_units
from service.errors import SummarizerError, shown
from service.ports.services import Summarizer, TokenCounter

#: Why a conversation was not compacted: the summarizer failed; the summary was no shorter than the
#: messages; the messages changed in the meantime; the share of summaries is too small for one.
Refusal = Literal["summarizer_failed", "not_smaller", "history_changed", "no_room"]


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


#: The most messages of one summary; beyond them, a later summary is made of this one.
MAX_ORIGINALS: Final = 10_000


class Originals:
    """The messages that a manager's summaries cover; later summaries are made from them."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Row, ...]] = {}
        self._newest = 0

    def of(self, row: Row) -> tuple[Row, ...]:
        """Return the messages that a summary covers; or the message itself."""
        return self._rows.get(summary_number(row), (row,)) if is_summary(row) else (row,)

    def expand(self, rows: Sequence[Row]) -> list[Row]:
        """Return messages with each summary replaced by those that it covers, each once."""
        behind = chain.from_iterable(self.of(row) for row in rows if is_summary(row))
        known = set(map(id, behind))
        expanded = (self.of(row) for row in rows if is_summary(row) or id(row) not in known)
        return list({id(row): row for row in chain.from_iterable(expanded)}.values())

    def number(self, summary: Row, originals: Sequence[Row]) -> Row:
        """Return a summary with the next number, the key of the messages that it covers."""
        self._newest += 1
        metadata = {**as_mapping(summary.get("metadata")), NUMBER: self._newest}
        if originals and len(originals) <= MAX_ORIGINALS:
            self._rows[self._newest] = tuple(originals)
        return {**summary, "metadata": metadata}

    def forget_all_but(self, rows: Iterable[Row]) -> None:
        """Forget the messages of summaries that are not among these."""
        numbers = {summary_number(row) for row in rows if is_summary(row)}
        self._rows = {number: self._rows[number] for number in self._rows if number in numbers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The messages of a summary, those that it replaces, and its greatest length."""

    messages: Sequence[Row]
    #: The indexes of the messages and summaries that it replaces.
    replaced: Collection[int]
    #: The summarizer's input: messages, and summaries only where the messages are gone.
    originals: Sequence[Row]
    #: Tokens of all messages, and of those that it replaces.
    tokens: int
    removed: int
    #: Tokens requested from the summarizer; less than 1 if summaries have no room.
    max_tokens: int

    async def summarize(
        self, summarizer: Summarizer, row_cost: RowCost, now: datetime
    ) -> CompactionResult:
        """Return a summary, or why there is none.

        What a summarizer raises other than `SummarizerError` is passed on.
        """
        if self.max_tokens < 1:
            return self._refuse("no_room")
        try:
            text = await read_answer(
                summarizer.summarize(read_dialogue(self.originals), max_tokens=self.max_tokens)
            )
        except SummarizerError as error:
            return self._refuse("summarizer_failed", error.detail)
        if not text.strip():
            return self._refuse("summarizer_failed", "the summary is empty")
        summary = with_mark(create_summary_message(text, generated=now), SUMMARY)
        if row_cost(summary) >= self.removed:
            return self._refuse("not_smaller")
        return CompactionResult(
            summary_message=summary,
            preserved_messages=deepcopy(self._preserved(0, len(self.messages))),
            original_token_count=self.tokens,
            new_token_count=self.tokens - self.removed + row_cost(summary),
        )

    def rows_with(self, summary: Row) -> list[Row]:
        """Return the conversation with the summary where the newest of what it replaces was.

        It follows all earlier summaries.
        """
        summaries = (index for index, row in enumerate(self.messages) if is_summary(row))
        place = max(chain(self.replaced, summaries))
        older = self._preserved(0, place)
        return [*older, summary, *self._preserved(place, len(self.messages))]

    def is_answered_by(self, rows: Sequence[Row]) -> bool:
        """Return whether messages that came later answer a call that is to be summarised."""
        replaced = (self.messages[index] for index in self.replaced)
        calls = {call.id for message in _read_all(replaced) for call in message.tool_calls}
        return any(m.tool_call_id in calls for m in _read_all(rows) if m.tool_call_id)

    def _preserved(self, start: int, end: int) -> list[Row]:
        return [self.messages[at] for at in range(start, end) if at not in self.replaced]

    def _refuse(self, refusal: Refusal, detail: str = "") -> CompactionResult:
        return CompactionResult(
            summary_message=None,
            preserved_messages=[deepcopy(row) for row in self.messages],
            original_token_count=self.tokens,
            new_token_count=self.tokens,
            refusal=refusal,
            detail=detail,
        )


async def read_answer(returned: object) -> str:
    """Return the text of a summarizer's `summarize`, "" for None; raises `TypeError` for others."""
    if not isawaitable(returned):
        raise TypeError(f"summarize has to be an async function, but returned {shown(returned)}")
    text: object = await returned
    if not isinstance(text, str | None):
        raise TypeError(f"summarize has to return a text, not {shown(text)}")
    return text or ""  # models return no content, too


@dataclass(frozen=True, slots=True)
class Selection:
    """A conversation in two parts, each in its order."""

    messages: Sequence[Row]
    #: The indexes of the messages to summarise.
    old: frozenset[int]
    #: The indexes of preserved messages that started some of these: the user's newest.
    questions: frozenset[int]

    def draft(
        self, share: int, originals: Originals, row_cost: RowCost, now: datetime
    ) -> Draft | None:
        """Return what to summarise, with ``share`` tokens for all summaries together.

        None if that would save nothing. A summary is of the selected messages alone while it has
        room next to the earlier summaries; otherwise it replaces these as well.
        """
        if not self.old:
            return None
        header = row_cost(with_mark(create_summary_message("", generated=now), SUMMARY))
        earlier = {index for index, row in enumerate(self.messages) if is_summary(row)}
        share -= header
        room = allowance(share, sum(row_cost(self.messages[index]) for index in earlier))
        replaced = self.old | earlier if room is None else self.old
        removed = sum(row_cost(self.messages[index]) for index in replaced)
        if removed - header <= 1:
            return None
        most = max(share // 2 if room is None else room, MIN_TOKENS)
        indexes = sorted(replaced | self.questions)
        return Draft(
            messages=self.messages,
            replaced=replaced,
            originals=originals.expand([self.messages[index] for index in indexes]),
            tokens=sum(map(row_cost, self.messages)),
            removed=removed,
            max_tokens=min(most, removed - header - 1) if share >= MIN_TOKENS else 0,
        )


def select_messages_for_compaction(
    messages: Sequence[Row],
    token_counter: TokenCounter,
    available_budget: int,
    recent_preserve_ratio: float,
) -> tuple[list[Row], list[Row]]:
    """Return the messages to summarise, and those to preserve.

    The newest messages within the given share of the budget are preserved, at least one; a call
    stays with its results. So are the user's newest message, system messages, and earlier
    summaries as long as they are within the same share together.
    """
    row_cost = RowCosts(token_counter)
    share = int(available_budget * recent_preserve_ratio)
    selection = select(messages, row_cost, share)
    old, numbered = selection.old, list(enumerate(messages))
    earlier = frozenset(index for index, row in numbered if is_summary(row))
    if old and sum(row_cost(messages[index]) for index in earlier) > share:
        old |= earlier
    return (
        [row for index, row in numbered if index in old],
        [row for index, row in numbered if index not in old],
    )


def build_summarize_prompt(messages: Iterable[Row | Message]) -> str:
    """Return a prompt that asks for a summary of messages, oldest first; secrets are redacted.

    They are messages of any shape, such as `select_messages_for_compaction` returns, or what a
    summarizer reads.
    """
    read = (
        (each,) if isinstance(each, Message) else read_messages(_as_source(each))
        for each in messages
    )
    return format_summary_prompt(map(transcribe, chain.from_iterable(read)))


def select(
    messages: Sequence[Row], row_cost: RowCost, budget: int, room: int | None = None
) -> Selection:
    """Split a conversation so that its newest part has at most ``budget`` tokens.

    With the user's newest message, it has at most ``room`` tokens.
    """
    units = read_units(messages)
    groups = pin_newest(
        group
        for group in units.groups(row_cost)
        if not any(written_by(item.row) for item in units.units[group.index])
    )
    if room is not None:
        budget = min(budget, room - sum(group.tokens for group in groups if group.pinned))
    newest = newest_that_fit(groups, budget) or groups[-1:]
    older = dropped_groups(groups, newest)
    indexes = _indexes(units, (group for group in older if not group.pinned))
    if indexes:
        # what repair leaves out is summarised with its neighbours
        read = {index for item in units.all_items() for index in item.indexes}
        indexes |= set(range(min(_indexes(units, newest), default=0))) - read
    pinned = _indexes(units, (group for group in older if group.pinned))
    questions = (index for index in pinned if index < max(indexes, default=0))
    return Selection(messages, frozenset(indexes), frozenset(questions))


def _indexes(units: Units, groups: Iterable[Group]) -> set[int]:
    """Return the indexes of the messages in groups."""
    items = chain.from_iterable(units.units[group.index] for group in groups)
    return {index for item in items for index in item.indexes}


def read_dialogue(rows: Iterable[Row]) -> tuple[Message, ...]:
    """Return what a summarizer reads: messages repaired, and summaries under a role of their own.

    Instructions are left out.
    """
    items = read_units([_as_source(row) for row in rows]).all_items()
    return tuple(chain.from_iterable(i.messages for i in items if not is_system(i.row)))


def _as_source(row: Row) -> Row:
    """Return a summary without its header, as no message of anybody; others as they are."""
    if not is_summary(row):
        return row
    text = "\n".join(message.content for message in read_messages(row))
    return {"role": SUMMARY, "content": read_summary(text)}


def _read_all(rows: Iterable[Row]) -> Iterable[Message]:
    return chain.from_iterable(map(read_messages, rows))
