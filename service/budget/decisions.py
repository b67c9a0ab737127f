"""From what was chosen of a block to a decision on every candidate, with its reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final, Literal, NamedTuple

from formatters.model import (
    BEYOND_LIMIT,
    CALL_NOT_READ,
    OLDER,
    RECALLABLE,
    Block,
    Entry,
    Message,
    Omission,
    cached,
)
from formatters.rows import counted
from service.budget.groups import Fit, Group

#: The outcome of a candidate: ``kept`` if its own text is in the messages whole, ``annotated`` if
#: only its call is, ``previewed`` or ``truncated`` if a part is, ``cleared`` if a placeholder is.
Outcome = Literal[
    "kept",
    "annotated",
    "previewed",
    "truncated",
    "cleared",
    "summarized",
    "filtered",
    "repaired",
    "dropped",
    "not_read",
]

#: Outcomes of candidates of which at least a part, or the call, is in the messages.
PRESENT: Final = frozenset({"kept", "annotated", "previewed", "truncated", "cleared", "repaired"})

#: Outcomes that don't change when rows are recalled.
_FINAL: Final = PRESENT | {"filtered"}

_NOTHING: Final = frozenset[str]()

#: The reasons: their codes, and a sentence for a person.
REASONS: Final = {
    "fits": "it fits into the budget",
    "call_only": "only the tool call is shown",
    "message_chars": "it was longer than the limit of characters and was cut",
    "passages": "it was longer than the limit of characters, so its most relevant parts are shown",
    "shortened": "its turn was too large for its tokens, so that long messages were cut",
    OLDER: "with all newer turns, it exceeds the tokens that history may use",
    "middle": "with the first turn and all newer turns, it exceeds the tokens for history",
    "window": "it is outside the window of messages that the strategy keeps",
    "score": "others score higher and fill the tokens for history",
    "no_room": "it is too long for the tokens that others left",
    "recalled": "its score for the current input is among the best that fit, so it is recalled",
    "repeated": "the input, or another message that is shown, says the same",
    "not_chosen": "its strategy left it out and gave no reason",
    "too_large": "it does not fit into the tokens that history may use, not even shortened",
    "no_opening": "APIs want a user's message before it, and none fits together with it",
    "insufficient": "the strategy kept more than the budget holds, so the oldest went",
    BEYOND_LIMIT: "it is older than the rows that history may show",
    CALL_NOT_READ: "it is a tool result, and the message that calls the tool was not read",
    "role": "messages of this role are no history; a system prompt has its place in the settings",
    "empty": "it has no text and no tool_calls",
    "tool_only": "it is a tool result, but its turn has no message that calls the tool",
    "offloaded": "it is a long tool result, so that only its beginning and its end are shown",
    "result_cleared": "its tool result was cleared, because too few tokens were left for it",
    "summarized": "a sentence that counts it with others replaces it",
    "in_summary": "a stored summary of it and others replaces it",
    "run_older": "with all newer messages of the run, it exceeds the tokens that the run may use",
    "orphan_result": "it is the result of a call that is not there",
    "duplicate_result": "its call has another result",
    "opaque_conflict": "it needs a change to a call that its provider requires unchanged",
    "result_pending": "a tool that it calls has not answered yet, so a placeholder was added",
    "result_missing": "a tool that it calls never answered, so a placeholder was added",
    "result_matched": "it names no call, so it was matched to the nearest one without a result",
    "result_moved": "it did not follow its call in the order of calls, or another one joined it",
    "call_renamed": "the id of a call was missing, too long, used before or had unusual characters",
    "form_mended": "it was not in the form that OpenAI's API requires, so it was changed",
    "arguments_mended": "the arguments of a call were no JSON of an object, so they were converted",
    "name_mended": "the name of a call was too long, or not accepted by any API; it was changed",
    "empty_result": "it was a result without text, so a sentence that says so was added",
    "blank_text": "it had a blank text among its parts, which APIs refuse, so that was left out",
    "stray_calls": "it had tool calls, which only the assistant may have, so they were removed",
    "current_run": "it belongs to the run that is being built",
    "not_read": "they are beyond the limit of rows or the budget, so they were not read",
}


#: The outcomes of rows that are sent, by their reason; with any other reason they are repaired.
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "fits": "kept",
    "recalled": "kept",
    "call_only": "annotated",
    "message_chars": "truncated",
    "passages": "truncated",
    "shortened": "truncated",
    "offloaded": "previewed",
    "result_cleared": "cleared",
}


class Decision(NamedTuple):
    """The outcome of candidates that share one.

    A named tuple, since every turn of a history has one: it is created in half the time.
    """

    message_ids: tuple[str, ...]
    block: str
    outcome: Outcome
    reason: str
    #: Tokens that they cost, or would have cost; None if they were not counted.
    tokens: int | None = None
    score: float | None = None
    #: The smallest ``memory_tokens`` that would have kept it whole, or for a message of the run the
    #: tokens of `RUN`; None where that is undefined.
    smallest_budget: int | None = None
    #: The number of rows, if they were not read.
    count: int | None = None  # type: ignore[assignment] # hides tuple.count, which is unused

    @property
    def detail(self) -> str:
        """Return the reason as a sentence."""
        size = f" ({counted(self.tokens, 'token')})" if self.tokens is not None else ""
        return f"{self.outcome.replace('_', ' ')}{size}: {explain_reason(self.reason)}"


def explain_reason(reason: str) -> str:
    """Return a reason as a sentence; a strategy of others has codes of its own."""
    return REASONS.get(reason) or f"its strategy says {reason}"


def tally(decisions: Iterable[Decision]) -> Counter[str]:
    """Count the candidates by their outcome, without rows that were not read."""
    counts: Counter[str] = Counter()
    for decision in decisions:
        if decision.message_ids:
            counts[decision.outcome] += len(decision.message_ids)
    return counts


class SentEntry(NamedTuple):
    """An entry as it is sent."""

    entry: Entry
    #: Where another entry follows; a shortened one is always alone.
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBlock:
    """A block of history, or of the run, as it is sent, and what was chosen of its candidates."""

    #: The block before anything was left out.
    original: Block
    block: Block
    groups: Sequence[Group]
    #: The entries that are sent, by the index of their group.
    sent: Mapping[int, SentEntry]
    fit: Fit
    #: Return the smallest budget that would keep a group, by its index, where it is defined.
    minimum_budgets: Callable[[], Mapping[int, int]] = dict
    #: True if the strategy kept more than the budget holds.
    insufficient: bool = False
    #: Precedes native history, in place of what was left out.
    summary: Block | None = None
    #: Rows of older turns, and the outcome of all of them; None if none could be recalled.
    recall: "RecallOutcome | None" = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks that are sent in the place of this one."""
        return (self.summary, self.block) if self.summary else (self.block,)

    @property
    def counted(self) -> tuple[str, tuple[Message, ...]] | None:
        """Return the strategy's sentence that counts omitted rows, and these rows."""
        dropped = [group for group in self.groups if group.index not in self.sent]
        if not dropped or self.fit.summary is None or self.fit.stored_summary:
            return None
        return self.fit.summary(dropped), tuple(m for group in dropped for m in group.messages)

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
        if self.recall:
            return self.recall.decisions
        decisions = [*chain.from_iterable(map(self._on_omission, self.original.omissions))]
        minimum_budgets = self.minimum_budgets()
        chosen = {group.index for group in self.fit.kept}
        for group in self.groups:
            sent = self.sent.get(group.index)
            if sent is None:
                default = "too_large" if group.index in chosen else "not_chosen"
                decisions += self._on_dropped(group, default, minimum_budgets.get(group.index))
            else:
                own = self.fit.decisions.get(group.index)
                score = own.score if own else None
                decisions += decide_on_entry(sent.entry, self.block.tag, "fits", sent.tokens, score)
        return tuple(decisions)

    @property
    def outcomes(self) -> Counter[str]:
        """Count the candidates by their outcome."""
        return self.recall.outcomes if self.recall else tally(self.decisions)

    def _on_omission(self, omission: Omission) -> Iterator[Decision]:
        reason, tag = omission.reason, self.block.tag
        if reason not in RECALLABLE and reason != CALL_NOT_READ:
            yield Decision(omission.message_ids, tag, "filtered", reason)
            return
        for is_summarized, ids in self._split_summarized(omission.message_ids):
            if is_summarized:
                yield Decision(ids, tag, "summarized", "in_summary")
            else:
                yield Decision(ids, tag, "dropped", reason)

    def _on_dropped(
        self, group: Group, default: str, minimum_budget: int | None
    ) -> Iterator[Decision]:
        own = self.fit.decisions.get(group.index)
        score = own.score if own else None
        outcome: Outcome = "dropped"
        reason, tag = own.reason if own else default, self.block.tag
        if self.fit.summary:
            outcome, reason = "summarized", "summarized"
        on_all = Decision((), tag, outcome, reason, group.tokens, score, minimum_budget)
        for is_summarized, ids in self._split_summarized(list_ids(group.messages)):
            if is_summarized:
                yield on_all._replace(message_ids=ids, outcome="summarized", reason="in_summary")
            else:
                yield on_all._replace(message_ids=ids)
            # the first one has the tokens of the whole group
            on_all = on_all._replace(tokens=None, smallest_budget=None)

    def _split_summarized(
        self, message_ids: Sequence[str]
    ) -> Iterator[tuple[bool, tuple[str, ...]]]:
        """Yield adjacent messages, with whether the stored summaries that are sent cover them."""
        summary = self.fit.stored_summary
        if summary is None:
            yield False, tuple(message_ids)
            return
        for is_covered, ids in groupby(message_ids, lambda id_: summary.form.covers_all((id_,))):
            yield is_covered, tuple(ids)


def decide_on_entry(
    entry: Entry, tag: str, reason: str, tokens: int, score: float | None
) -> tuple[Decision, ...]:
    """Decide on the rows of an entry that is sent: one decision for adjacent ones that are alike.

    ``reason`` is that of rows that are shown whole.
    """
    if score is None:
        return cached(entry.made, (reason, tag, tokens), _decide, entry, tag, reason, tokens, score)
    return _decide(entry, tag, reason, tokens, score)


def _decide(
    entry: Entry, tag: str, reason: str, tokens: int, score: float | None
) -> tuple[Decision, ...]:
    ids, reasons = list_ids(entry.messages), entry.reasons
    if not reasons:
        return (Decision(ids, tag, _OUTCOMES.get(reason, "repaired"), reason, tokens, score),)
    alike = groupby(ids, lambda id_: reasons.get(id_, reason))
    first, *others = (
        Decision(tuple(same), tag, _OUTCOMES.get(code, "repaired"), code, None, score)
        for code, same in alike
    )
    # the first one has the tokens of the whole entry
    return (first._replace(tokens=tokens), *others)


def list_ids(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the ids of messages."""
    return tuple([message.id for message in messages])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledRows:
    """The choice among rows of older turns."""

    #: The block of rows that are recalled; None if none is.
    sent: Block | None = None
    #: The decisions on candidates of which at least a call is shown, without their scores.
    present: Sequence[Decision] = ()
    #: Return the decision on each candidate; few builds ask for them.
    decide: Callable[[], Sequence[Decision]] = tuple

    @property
    def recalled(self) -> Set[str]:
        """Return the ids of the messages that are recalled, whole or in part."""
        entries = self.sent.entries if self.sent else ()
        return {entry.messages[0].id for entry in entries if entry.messages}


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """The choices among the newest turns, and among the rows of older ones."""

    #: The block of history before anything was left out.
    block: Block
    #: That of the newest turns.
    newest: FittedBlock
    #: Those that are in none of the newest turns.
    rows: RecalledRows

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decide on every candidate: on rows that could be recalled, then on the newest turns."""
        final, decided = self._final()
        on_rows = [*self._add_turn_tokens(_without(self.rows.decide(), decided))]
        decided.update(id_ for decision in on_rows for id_ in decision.message_ids)
        # messages that no row prints, such as calls of a run that is shown in part
        all_ids = chain(self._omitted(), (list_ids(entry.messages) for entry in self.block.entries))
        others = (tuple(id_ for id_ in ids if id_ not in decided) for ids in all_ids)
        on_others = [Decision(ids, self.block.tag, "dropped", OLDER) for ids in others if ids]
        return (*on_rows, *on_others, *final)

    @property
    def outcomes(self) -> Counter[str]:
        """Count the candidates by their outcome; whatever isn't present is dropped."""
        final, decided = self._final()
        present = [*final, *_without(self.rows.present, decided)]
        candidates = {message.id for entry in self.block.entries for message in entry.messages}
        candidates.update(*self._omitted())
        candidates.difference_update(*[each.message_ids for each in present])
        return tally([*present, Decision(tuple(candidates), self.block.tag, "dropped", OLDER)])

    def _final(self) -> tuple[list[Decision], set[str]]:
        """Return the decisions that no recall changes, and the ids that they are about."""
        recalled, newest = self.rows.recalled, self.newest.decisions
        settled = [d for d in newest if d.outcome in _FINAL or d.reason == CALL_NOT_READ]
        final = [
            remaining
            for each in settled
            for remaining in _without((each,), _NOTHING if each.outcome == "kept" else recalled)
        ]
        return final, {id_ for decision in final for id_ in decision.message_ids}

    def _add_turn_tokens(self, on_rows: Iterable[Decision]) -> Iterator[Decision]:
        """Add the tokens of newest turns that no other decision has.

        They are those of turns that begin with a message of which a part is recalled.
        """
        recalled = self.rows.recalled
        turns = {
            each.message_ids[0]: each.tokens
            for each in self.newest.decisions
            if each.tokens and each.outcome != "kept" and recalled >= {*each.message_ids}
        }
        for each in on_rows:
            of_turn = turns.get(each.message_ids[0], 0)
            yield each._replace(tokens=(each.tokens or 0) + of_turn) if of_turn else each

    def _omitted(self) -> Iterator[tuple[str, ...]]:
        return (o.message_ids for o in self.block.omissions if o.reason in RECALLABLE)


def _without(decisions: Iterable[Decision], decided: Set[str]) -> list[Decision]:
    """Take ids out of decisions, as the repair of a tool result may have decided on it already.

    A decision without any other id is left out.
    """
    remaining = [
        each
        if decided.isdisjoint(each.message_ids)
        else each._replace(message_ids=tuple(id_ for id_ in each.message_ids if id_ not in decided))
        for each in decisions
    ]
    return [each for each in remaining if each.message_ids]
