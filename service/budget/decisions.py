"""Decisions: what became of every candidate, with a code and a sentence."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

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
    "memory_limit": "it lies beyond the number of rows that history may show",
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
OWN_REASON: Final = "its strategy gives this reason"


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
        return f"{self.outcome.replace('_', ' ')}{size}: {REASONS.get(self.reason, OWN_REASON)}"


def tally(decisions: Iterable[Decision]) -> tuple[int, int]:
    """Return how many candidates are in the messages, at least in part, and how many are not."""
    counts: Counter[bool] = Counter()
    for decision in decisions:
        counts[decision.outcome in PRESENT] += len(decision.message_ids)
    return counts[True], counts[False]
