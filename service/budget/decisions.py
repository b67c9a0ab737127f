"""From what was chosen to a decision on every candidate."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal, NamedTuple

from formatters.model import BEYOND_LIMIT, Block, Entry, Message
from service.budget.groups import Fit, Group

Outcome = Literal[
    "kept", "dropped", "cleared", "truncated", "summarized", "filtered", "repaired", "not_read"
]

#: Outcomes of candidates of which something is in the messages.
PRESENT: Final = frozenset({"kept", "cleared", "truncated", "repaired"})

#: Why: the code, and the sentence for a person.
REASONS: Final = {
    "fits": "it fits into the budget",
    "message_chars": "a message in it was longer than the limit of characters and was cut",
    "shortened": "it was too large for the budget as a whole, so its messages were cut",
    "older": "newer turns filled the tokens that history may use",
    "middle": "the first turn and newer ones filled the tokens that history may use",
    "window": "it lies outside the window of messages that the strategy keeps",
    "score": "others score higher for the tokens that history may use",
    "recalled": "it tells about the current input, and stands among what was recalled",
    "repeated": "what it says is there already",
    "too_large": "it does not fit into the tokens that history may use, not even shortened",
    "insufficient": "the strategy kept more than the budget holds, so the oldest went",
    BEYOND_LIMIT: "it lies beyond the number of rows that history may show",
    "role": "messages of this role are not shown as history",
    "empty": "it says nothing and calls no tool",
    "tool_only": "it holds tool results without a message that belongs to them",
    "result_cleared": "its tool result was cleared, since newer messages needed the tokens",
    "summarized": "a sentence that counts it with others stands in its place",
    "in_summary": "a summary that was made of it and others stands in its place",
    "run_older": "newer messages of the run filled the tokens that the run may use",
    "orphan_result": "it is the result of a call that is not there",
    "duplicate_result": "its call has another result",
    "opaque_conflict": "a call would have to be changed that its provider wants back as it was",
    "result_pending": "a tool that it calls has not answered yet, which a made-up result says",
    "result_missing": "a tool that it calls never answered, which a made-up result says",
    "result_matched": "it names no call, so it answers the nearest one without a result",
    "result_moved": "it did not stand behind its call, where every API wants it",
    "call_renamed": "the id of a call was missing, too long, used before or like structure",
    "arguments_mended": "the arguments of a call were no JSON object, so they are an empty one",
    "name_mended": "the name of a call had characters that no API takes, or too many",
    "empty_result": "it was an empty result, and now says so",
    "stray_calls": "it has calls, but only the assistant calls tools",
    "current_run": "it belongs to the run that is being built",
    "not_read": "neither the limit of rows nor the budget had room for them, so they stayed unread",
}


#: Said of codes that a strategy of another package gives.
THIRD_PARTY_REASON: Final = "its strategy gives this reason"


class Decision(NamedTuple):
    """What became of candidates that share one fate.

    A named tuple, as there is one for every turn of a history: it is made in half of the time.
    """

    message_ids: tuple[str, ...]
    block: str
    outcome: Outcome
    reason: str
    #: Tokens that they cost, or would have cost.
    tokens: int | None = None
    score: float | None = None
    #: The ``memory_tokens`` at which it would have been kept whole, of a message of the run the
    #: tokens of `RUN`; None where that is not defined.
    smallest_budget: int | None = None
    #: How many rows it speaks of, where they were not read.
    count: int | None = None  # type: ignore[assignment] # hides tuple.count, which nobody needs

    @property
    def detail(self) -> str:
        """Return the reason as a sentence."""
        size = f" ({self.tokens} tokens)" if self.tokens is not None else ""
        reason = REASONS.get(self.reason, THIRD_PARTY_REASON)
        return f"{self.outcome.replace('_', ' ')}{size}: {reason}"


def tally(decisions: Iterable[Decision]) -> tuple[int, int]:
    """Return how many candidates are in the messages, at least in part, and how many are not."""
    counts: Counter[bool] = Counter()
    for decision in decisions:
        counts[decision.outcome in PRESENT] += len(decision.message_ids)
    return counts[True], counts[False]


class SentEntry(NamedTuple):
    """An entry as it is sent."""

    entry: Entry
    #: Where another entry follows; a shortened one stands alone.
    tokens: int
    shortened: bool = False
    #: The rows whose tool results are cleared.
    cleared: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Tell whether nothing of it is left out."""
        return not self.shortened and not self.cleared


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """What became of the candidates of a block."""

    block: Block
    groups: Sequence[Group]
    #: What is sent, by the index of its group.
    shown: Mapping[int, SentEntry]
    fit: Fit
    #: Tell the least budget that would keep a group, by its index, where that is defined.
    least: Callable[[], Mapping[int, int]] = dict

    @property
    def saved(self) -> int:
        """Return the tokens of candidates that are not sent, or of what is left out of them."""
        sent = sum(shown.tokens for shown in self.shown.values())
        return sum(group.tokens for group in self.groups) - sent

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decide on every candidate: those that the block left out, and those of its groups.

        Decisions are made when they are asked for: for a long history they take longer than the
        choice itself.
        """
        decisions = [*self._omitted()]
        least = self.least()
        for group in self.groups:
            each = self.shown.get(group.index)
            if each is None:
                decisions.append(self._left_out(group, least.get(group.index)))
            else:
                decisions += self._sent(group, each)
        return tuple(decisions)

    def _omitted(self) -> Iterator[Decision]:
        for omission in self.block.omissions:
            outcome: Outcome = "filtered"
            reason = omission.reason
            if reason == BEYOND_LIMIT:
                outcome, reason = self._replaced(omission.message_ids) or ("dropped", reason)
            yield Decision(
                message_ids=omission.message_ids,
                block=self.block.tag,
                outcome=outcome,
                reason=reason,
            )

    def _replaced(self, message_ids: Sequence[str]) -> tuple[Outcome, str] | None:
        """Return the fate of messages for which stored summaries stand, or None."""
        stored_summary = self.fit.stored_summary
        covered = stored_summary is not None and stored_summary.form.covers_all(message_ids)
        return ("summarized", "in_summary") if covered else None

    def _left_out(self, group: Group, least: int | None) -> Decision:
        verdict = self.fit.decisions.get(group.index)
        ids = _ids(group.messages)
        fate: tuple[Outcome, str] = ("dropped", verdict.reason if verdict else "too_large")
        if self.fit.summary:
            fate = ("summarized", "summarized")
        outcome, reason = self._replaced(ids) or fate
        return Decision(
            message_ids=ids,
            block=self.block.tag,
            outcome=outcome,
            reason=reason,
            tokens=group.tokens,
            score=verdict.score if verdict else None,
            smallest_budget=least,
        )

    def _sent(self, group: Group, shown: SentEntry) -> list[Decision]:
        """Decide on a group that is sent; messages that share a fate share a decision."""
        verdict = self.fit.decisions.get(group.index)
        return [
            Decision(
                message_ids=ids,
                block=self.block.tag,
                outcome=outcome,
                reason=reason,
                # the first speaks for the whole group
                tokens=None if place else shown.tokens,
                score=verdict.score if verdict else None,
            )
            for place, ((outcome, reason), ids) in enumerate(
                _fates(group.messages, shown, self.block.entries[group.index])
            )
        ]


def _fates(
    messages: Sequence[Message], shown: SentEntry, entry: Entry
) -> list[tuple[tuple[Outcome, str], tuple[str, ...]]]:
    """Return what became of messages, by the ids of neighbours that share a fate."""
    ids = _ids(messages)
    if not shown.cleared and not entry.repairs:
        return [(_common_fate(shown, entry), ids)]
    fates = groupby(ids, key=lambda id_: _fate(id_, shown, entry))
    return [(fate, tuple(same)) for fate, same in fates]


def _fate(id_: str, shown: SentEntry, entry: Entry) -> tuple[Outcome, str]:
    if id_ in shown.cleared:
        return "cleared", "result_cleared"
    if id_ in entry.repairs and not shown.shortened:
        return "repaired", entry.repairs[id_]
    return _common_fate(shown, entry)


def _common_fate(shown: SentEntry, entry: Entry) -> tuple[Outcome, str]:
    if shown.shortened:
        return "truncated", "shortened"
    return ("truncated", "message_chars") if entry.cut else ("kept", "fits")


def _ids(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple([message.id for message in messages])
