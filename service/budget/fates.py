"""From what was chosen to a decision on every candidate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from formatters.model import Block, Entry, Message
from service.budget.decisions import Decision, Outcome
from service.budget.groups import Fit, Group


class Shown(NamedTuple):
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
class Fates:
    """What became of the candidates of a block."""

    block: Block
    groups: Sequence[Group]
    #: What is sent, by the index of its group.
    shown: Mapping[int, Shown]
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
            if reason == "memory_limit":
                outcome, reason = self._replaced(omission.message_ids) or ("dropped", reason)
            yield Decision(
                message_ids=omission.message_ids,
                block=self.block.tag,
                outcome=outcome,
                reason=reason,
            )

    def _replaced(self, message_ids: Sequence[str]) -> tuple[Outcome, str] | None:
        """Return the fate of messages for which stored summaries stand, or None."""
        stand_in = self.fit.stand_in
        covered = stand_in is not None and stand_in.form.covers_all(message_ids)
        return ("summarized", "in_summary") if covered else None

    def _left_out(self, group: Group, least: int | None) -> Decision:
        verdict = self.fit.verdicts.get(group.index)
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

    def _sent(self, group: Group, shown: Shown) -> list[Decision]:
        """Decide on a group that is sent; messages that share a fate share a decision."""
        verdict = self.fit.verdicts.get(group.index)
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
    messages: Sequence[Message], shown: Shown, entry: Entry
) -> list[tuple[tuple[Outcome, str], tuple[str, ...]]]:
    """Return what became of messages, by the ids of neighbours that share a fate."""
    ids = _ids(messages)
    if not shown.cleared and not entry.repairs:
        return [(_common_fate(shown, entry), ids)]
    fates = groupby(ids, key=lambda id_: _fate(id_, shown, entry))
    return [(fate, tuple(same)) for fate, same in fates]


def _fate(id_: str, shown: Shown, entry: Entry) -> tuple[Outcome, str]:
    if id_ in shown.cleared:
        return "cleared", "result_cleared"
    if id_ in entry.repairs and not shown.shortened:
        return "repaired", entry.repairs[id_]
    return _common_fate(shown, entry)


def _common_fate(shown: Shown, entry: Entry) -> tuple[Outcome, str]:
    if shown.shortened:
        return "truncated", "shortened"
    return ("truncated", "message_chars") if entry.cut else ("kept", "fits")


def _ids(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple([message.id for message in messages])
