"""From what was chosen to a decision on every candidate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from formatters.model import Block, Entry
from service.budget.decisions import Decision, Outcome
from service.budget.groups import Fit, Group, Verdict


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry as it is sent."""

    entry: Entry
    #: Where another entry follows; a shortened one stands alone.
    tokens: int
    shortened: bool = False
    #: The rows whose tool results are cleared.
    cleared: frozenset[str] = frozenset()


def decided(
    block: Block, groups: Sequence[Group], shown: Mapping[int, Shown], fit: Fit
) -> tuple[Decision, ...]:
    """Decide on every candidate of a block: those it left out, and those of its groups."""
    decisions = [*_omitted(block)]
    for group in groups:
        verdict = fit.verdicts.get(group.index)
        each = shown.get(group.index)
        if each is None:
            decisions.append(_left_out(block.tag, group, verdict, fit))
        else:
            decisions += _sent(block, group, each, verdict)
    return tuple(decisions)


def with_least(fit: Fit, least: Mapping[int, int]) -> Fit:
    """Tell with each verdict the least budget, in tokens, that would have changed it."""
    told = {
        index: replace(verdict, least=least.get(index)) for index, verdict in fit.verdicts.items()
    }
    return replace(fit, verdicts=told)


def _omitted(block: Block) -> Iterator[Decision]:
    for omission in block.omissions:
        beyond = omission.reason == "memory_limit"
        yield Decision(
            message_ids=omission.message_ids,
            block=block.tag,
            outcome="dropped" if beyond else "filtered",
            reason=omission.reason,
        )


def _left_out(tag: str, group: Group, verdict: Verdict | None, fit: Fit) -> Decision:
    reason = verdict.reason if verdict else "too_large"
    return Decision(
        message_ids=tuple(message.id for message in group.messages),
        block=tag,
        outcome="summarized" if fit.summary else "dropped",
        reason="summarized" if fit.summary else reason,
        tokens=group.tokens,
        score=verdict.score if verdict else None,
        smallest_budget=verdict.least if verdict else None,
    )


def _sent(block: Block, group: Group, shown: Shown, verdict: Verdict | None) -> Iterator[Decision]:
    """Decide on a group that is sent; messages that share a fate share a decision."""
    entry = block.entries[group.index]
    fates = [(_fate(message.id, shown, entry), message.id) for message in group.messages]
    for place, ((outcome, reason), pairs) in enumerate(groupby(fates, key=lambda pair: pair[0])):
        yield Decision(
            message_ids=tuple(id_ for _, id_ in pairs),
            block=block.tag,
            outcome=outcome,
            reason=reason,
            # the first speaks for the whole group
            tokens=None if place else shown.tokens,
            score=verdict.score if verdict else None,
        )


def _fate(id_: str, shown: Shown, entry: Entry) -> tuple[Outcome, str]:
    if id_ in shown.cleared:
        return "cleared", "result_cleared"
    if shown.shortened:
        return "truncated", "shortened"
    if id_ in entry.repairs:
        return "repaired", entry.repairs[id_]
    return ("truncated", "message_chars") if entry.cut else ("kept", "fits")
