"""From what was chosen of a block to a decision on every candidate, with its reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal, NamedTuple

from formatters.model import BEYOND_LIMIT, Block, Entry, Message, Omission
from service.budget.groups import Fit, Group

Outcome = Literal[
    "kept", "dropped", "cleared", "truncated", "summarized", "filtered", "repaired", "not_read"
]

#: Outcomes of candidates of which at least a part is in the messages.
PRESENT: Final = frozenset({"kept", "cleared", "truncated", "repaired"})

#: Outcomes that don't change when rows are recalled.
_FINAL: Final = PRESENT | {"filtered"}

#: The reasons: their codes, and a sentence for a person.
REASONS: Final = {
    "fits": "it fits into the budget",
    "message_chars": "a message in it was longer than the limit of characters and was cut",
    "shortened": "it was too large for the budget as a whole, so its messages were cut",
    "older": "newer turns filled the tokens that history may use",
    "middle": "the first turn and newer ones filled the tokens that history may use",
    "window": "it is outside the window of messages that the strategy keeps",
    "score": "others score higher for the tokens that history may use",
    "recalled": "it is relevant to the current input, so it is among the recalled messages",
    "repeated": "another message that is shown says the same",
    "too_large": "it does not fit into the tokens that history may use, not even shortened",
    "insufficient": "the strategy kept more than the budget holds, so the oldest went",
    BEYOND_LIMIT: "it is older than the rows that history may show",
    "role": "messages of this role are not shown as history",
    "empty": "it has no text and calls no tool",
    "tool_only": "it has tool results, but no message that they belong to",
    "result_cleared": "its tool result was cleared, because newer messages needed the tokens",
    "summarized": "a sentence that counts it with others replaces it",
    "in_summary": "a stored summary of it and others replaces it",
    "run_older": "newer messages of the run filled the tokens that the run may use",
    "orphan_result": "it is the result of a call that is not there",
    "duplicate_result": "its call has another result",
    "opaque_conflict": "it needs a change to a call that its provider requires unchanged",
    "result_pending": "a tool that it calls has not answered yet, so a placeholder was added",
    "result_missing": "a tool that it calls never answered, so a placeholder was added",
    "result_matched": "it names no call, so it was matched to the nearest one without a result",
    "result_moved": "it did not follow its call, as every API requires, so it was moved",
    "call_renamed": "the id of a call was missing, too long, in use or like structure",
    "arguments_mended": "the arguments of a call were not a JSON object, so they were emptied",
    "name_mended": "the name of a call was too long, or not accepted by any API; it was changed",
    "empty_result": "it was an empty result, so a text that says so was added",
    "stray_calls": "it had tool calls, which only the assistant may have, so they were removed",
    "current_run": "it belongs to the run that is being built",
    "not_read": "they are beyond the limit of rows or the budget, so they were not read",
}

#: The sentence for a reason that a third-party strategy gives.
THIRD_PARTY_REASON: Final = "its strategy gives this reason"


class Decision(NamedTuple):
    """The outcome of candidates that share one.

    A named tuple, since every turn of a history has one: it is created in half the time.
    """

    message_ids: tuple[str, ...]
    block: str
    outcome: Outcome
    reason: str
    #: Tokens that they cost, or would have cost.
    tokens: int | None = None
    score: float | None = None
    #: The smallest ``memory_tokens`` that would have kept it whole, or for a message of the run the
    #: tokens of `RUN`; None where that is undefined.
    smallest_budget: int | None = None
    #: The number of rows, if they were not read.
    count: int | None = None  # type: ignore[assignment] # hides tuple.count, which nobody needs

    @property
    def detail(self) -> str:
        """Return the reason as a sentence."""
        size = f" ({self.tokens} tokens)" if self.tokens is not None else ""
        reason = REASONS.get(self.reason, THIRD_PARTY_REASON)
        return f"{self.outcome.replace('_', ' ')}{size}: {reason}"


def tally(decisions: Iterable[Decision]) -> tuple[int, int]:
    """Count the candidates of which at least a part is sent, and those of which nothing is."""
    counts: Counter[bool] = Counter()
    for decision in decisions:
        counts[decision.outcome in PRESENT] += len(decision.message_ids)
    return counts[True], counts[False]


class SentEntry(NamedTuple):
    """An entry as it is sent."""

    entry: Entry
    #: Where another entry follows; a shortened one is always alone.
    tokens: int
    shortened: bool = False
    #: The ids of the rows whose tool results are cleared.
    cleared: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Return whether it is sent unchanged."""
        return not self.shortened and not self.cleared


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """What was chosen of a block's candidates, from which the decisions are made."""

    #: The block before anything was left out.
    block: Block
    groups: Sequence[Group]
    #: What is sent, by the index of its group.
    sent: Mapping[int, SentEntry]
    fit: Fit
    #: Return the smallest budget that would keep a group, by its index, where it is defined.
    minimum_budgets: Callable[[], Mapping[int, int]] = dict

    @property
    def saved(self) -> int:
        """Return the tokens of everything that is not sent."""
        sent = sum(entry.tokens for entry in self.sent.values())
        return sum(group.tokens for group in self.groups) - sent

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decide on every candidate: those that the block omitted, and those of its groups.

        Decisions are made on demand, since for a long history they take longer than the choice.
        """
        decisions = [self._on_omission(omission) for omission in self.block.omissions]
        minimum_budgets = self.minimum_budgets()
        for group in self.groups:
            sent = self.sent.get(group.index)
            if sent is None:
                decisions.append(self._on_dropped(group, minimum_budgets.get(group.index)))
            else:
                decisions += self._on_sent(group, sent)
        return tuple(decisions)

    def _on_omission(self, omission: Omission) -> Decision:
        ids, reason = omission.message_ids, omission.reason
        if reason != BEYOND_LIMIT:
            return Decision(ids, self.block.tag, "filtered", reason)
        if self._is_summarized(ids):
            return Decision(ids, self.block.tag, "summarized", "in_summary")
        return Decision(ids, self.block.tag, "dropped", reason)

    def _on_dropped(self, group: Group, minimum_budget: int | None) -> Decision:
        own = self.fit.decisions.get(group.index)
        ids = _ids(group.messages)
        outcome: Outcome = "dropped"
        reason = own.reason if own else "too_large"
        if self._is_summarized(ids):
            outcome, reason = "summarized", "in_summary"
        elif self.fit.summary:
            outcome, reason = "summarized", "summarized"
        return Decision(
            message_ids=ids,
            block=self.block.tag,
            outcome=outcome,
            reason=reason,
            tokens=group.tokens,
            score=own.score if own else None,
            smallest_budget=minimum_budget,
        )

    def _on_sent(self, group: Group, sent: SentEntry) -> Iterator[Decision]:
        """Decide on a group that is sent: one decision for adjacent messages with one outcome."""
        own = self.fit.decisions.get(group.index)
        tokens: int | None = sent.tokens
        for (outcome, reason), ids in _outcomes(group, sent, self.block.entries[group.index]):
            score = own.score if own else None
            yield Decision(ids, self.block.tag, outcome, reason, tokens, score)
            tokens = None  # the first decision has those of the whole group

    def _is_summarized(self, message_ids: Iterable[str]) -> bool:
        """Return whether the stored summaries that are sent cover all of these messages."""
        summary = self.fit.stored_summary
        return summary is not None and summary.form.covers_all(message_ids)


def _outcomes(
    group: Group, sent: SentEntry, original: Entry
) -> list[tuple[tuple[Outcome, str], tuple[str, ...]]]:
    """Return outcome and reason, and the ids of adjacent messages that share them."""
    ids = _ids(group.messages)
    common: tuple[Outcome, str] = ("kept", "fits")
    if sent.shortened:
        common = ("truncated", "shortened")
    elif original.cut:
        common = ("truncated", "message_chars")
    if not sent.cleared and not original.repairs:
        return [(common, ids)]

    def outcome_of(id_: str) -> tuple[Outcome, str]:
        if id_ in sent.cleared:
            return "cleared", "result_cleared"
        if id_ in original.repairs and not sent.shortened:
            return "repaired", original.repairs[id_]
        return common

    return [(outcome, tuple(same)) for outcome, same in groupby(ids, key=outcome_of)]


def _ids(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple([message.id for message in messages])


# --- recalled rows ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """What was chosen of the newest turns, and of the rows of older ones."""

    #: The block of history before anything was left out.
    block: Block
    #: That of the newest turns.
    newest: BlockOutcome
    #: The decisions on rows that are in none of the newest turns, in their order.
    row_decisions: Sequence[Decision]
    #: The block of rows that are recalled; None if none is.
    sent: Block | None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decide on every candidate: on rows that could be recalled, then on the newest turns."""
        final = [each for each in self.newest.decisions if each.outcome in _FINAL]
        decided = {id_ for decision in final for id_ in decision.message_ids}
        # a tool result that belongs to a row may be decided already, by its repair
        on_rows = [
            row._replace(message_ids=tuple(id_ for id_ in row.message_ids if id_ not in decided))
            for row in self.row_decisions
        ]
        decided.update(id_ for decision in on_rows for id_ in decision.message_ids)
        return (*on_rows, *self._on_others(decided), *final)

    def _on_others(self, decided: Set[str]) -> Iterator[Decision]:
        """Decide on messages that no row prints, such as calls of a run that is shown in part."""
        candidates = (
            *(each.message_ids for each in self.block.omissions if each.reason == BEYOND_LIMIT),
            *(_ids(entry.messages) for entry in self.block.entries),
        )
        for candidate in candidates:
            ids = tuple(id_ for id_ in candidate if id_ not in decided)
            if ids:
                yield Decision(ids, self.block.tag, "dropped", "older")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBlock:
    """A block of history, or of the run, as it is sent, and the outcome of its candidates."""

    block: Block
    outcome: BlockOutcome
    #: True if the strategy kept more than the budget holds.
    insufficient: bool = False
    #: Precedes native history, in place of what was left out.
    summary: Block | None = None
    #: Rows of older turns, and the outcome of all of them; None if none could be recalled.
    recall: RecallOutcome | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks that are sent in the place of this one."""
        return (self.summary, self.block) if self.summary else (self.block,)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate."""
        return (self.recall or self.outcome).decisions
