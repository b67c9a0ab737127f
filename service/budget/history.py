"""Fit the block of history: the chosen strategy, then a hard cut, then shortening."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from formatters.model import COUNT_MARK, Block, Count, Entry
from service.budget.counting import MESSAGE_OVERHEAD, entry_tokens
from service.budget.decisions import Decision, Outcome
from service.budget.groups import Fit, Group, Strategy, Verdict, cost, newest_that_fit

#: Characters a message below which a shortened turn says nothing any more.
LEAST_CHARS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedHistory:
    """The block of history as it is sent, and what became of every candidate."""

    block: Block
    decisions: tuple[Decision, ...]
    #: True where the strategy kept more than the budget holds.
    insufficient: bool = False


def fit_history(
    block: Block, strategy: Strategy, budget: int | None, count: Count
) -> FittedHistory:
    """Choose entries so that the block's message costs at most ``budget`` tokens; None is no limit.

    A turn that is larger than the whole block is weighed as if it filled it; once it is chosen, it
    stands alone and is shortened. One that no shortening makes fit makes way for the others.
    """
    groups = [_group(index, entry, count) for index, entry in enumerate(block.entries)]
    if budget is None or not groups:
        return _fitted(block, groups, Fit(kept=tuple(groups)))
    room = budget - MESSAGE_OVERHEAD - _dearest_heading(block, count)
    clamped = [_clamped(group, room) for group in groups]
    choice = strategy.fit(clamped, room)
    fit = _hard(choice, room)
    texts = _shorten(block, groups, fit.kept, room, count)
    if None in texts.values():
        texts = _shorten(block, groups, clamped, room, count)
        choice = strategy.fit([g for g in clamped if texts.get(g.index, g)], room)
        fit = _hard(choice, room)
    fitted = _fitted(block, groups, _told(fit, texts), {i: t for i, t in texts.items() if t})
    return replace(fitted, insufficient=fit is not choice)


def smallest(block: Block) -> Block:
    """Return the block with nothing but its placeholder."""
    if not block.entries:
        return block
    return replace(block, entries=(), placeholder=block.placeholder_when_cut)


@dataclass(frozen=True, slots=True)
class _Text:
    """An entry as it is sent."""

    entry: Entry
    #: Where another entry follows; a shortened one stands alone.
    tokens: int
    shortened: bool = False


def _group(index: int, entry: Entry, count: Count) -> Group:
    return Group(
        index=index,
        tokens=entry_tokens(entry, count),
        tokens_last=count(entry.text),
        messages=entry.messages,
        size=entry.rows,
    )


def _dearest_heading(block: Block, count: Count) -> int:
    """Price the heading at the largest number that can stand in it."""
    rows = sum(entry.rows for entry in block.entries)
    return count(block.header.replace(COUNT_MARK, f"count={rows}"))


def _clamped(group: Group, room: int) -> Group:
    if group.tokens_last <= room:
        return group
    return replace(group, tokens=room, tokens_last=room)


def _hard(fit: Fit, room: int) -> Fit:
    """Cut what a strategy left over the budget: here no group is protected."""
    if cost(fit.kept) <= room:
        return fit
    kept = newest_that_fit(fit.kept, room)
    cut = fit.kept[: len(fit.kept) - len(kept)]
    verdicts = {**fit.verdicts, **{group.index: Verdict("insufficient") for group in cut}}
    return replace(fit, kept=kept, verdicts=verdicts)


def _shorten(
    block: Block, groups: Sequence[Group], weighed: Sequence[Group], room: int, count: Count
) -> dict[int, _Text | None]:
    """Shorten those that were clamped; None for one that no shortening makes fit."""
    clamped = (group.index for group in weighed if group != groups[group.index])
    return {index: _shortened(block.entries[index], room, count) for index in clamped}


def _shortened(entry: Entry, room: int, count: Count) -> _Text | None:
    """Return the entry with as many characters a message as fit into ``room`` tokens."""
    if entry.shorten is None or room <= 0:
        return None
    best = None
    low, high = LEAST_CHARS, max(entry.longest, LEAST_CHARS)
    while low <= high:
        # the least first: where that does not fit, nothing does
        middle = (low + high) // 2 if best else low
        shorter = entry.shorten(middle)
        tokens = count(shorter.text)
        if tokens <= room:
            best, low = _Text(shorter, tokens, shortened=True), middle + 1
        else:
            high = middle - 1
    return best


def _told(fit: Fit, texts: Mapping[int, _Text | None]) -> Fit:
    """Say why those were left out that no shortening made fit."""
    hopeless = {index: Verdict("too_large") for index, text in texts.items() if not text}
    return replace(fit, verdicts={**fit.verdicts, **hopeless})


def _fitted(
    block: Block,
    groups: Sequence[Group],
    fit: Fit,
    shortened: Mapping[int, _Text] = MappingProxyType({}),
) -> FittedHistory:
    """Put the chosen entries together, each as a whole or in its shortened text."""
    whole = {group.index: _Text(block.entries[group.index], group.tokens) for group in groups}
    texts = {group.index: shortened.get(group.index, whole[group.index]) for group in fit.kept}
    entries = tuple(text.entry for text in texts.values())
    decisions = [
        _decision(block.tag, group, texts.get(group.index), fit.verdicts.get(group.index))
        for group in groups
    ]
    return FittedHistory(
        block=replace(block, entries=entries) if entries else smallest(block),
        decisions=(*_omitted(block), *decisions),
    )


def _omitted(block: Block) -> Iterator[Decision]:
    for omission in block.omissions:
        beyond = omission.reason == "memory_limit"
        yield Decision(
            message_ids=omission.message_ids,
            block=block.tag,
            outcome="dropped" if beyond else "filtered",
            reason=omission.reason,
        )


def _decision(tag: str, group: Group, text: _Text | None, verdict: Verdict | None) -> Decision:
    outcome, reason = _fate(text, verdict)
    return Decision(
        message_ids=tuple(message.id for message in group.messages),
        block=tag,
        outcome=outcome,
        reason=reason,
        tokens=text.tokens if text else group.tokens,
        score=verdict.score if verdict else None,
    )


def _fate(text: _Text | None, verdict: Verdict | None) -> tuple[Outcome, str]:
    if text is None:
        return "dropped", verdict.reason if verdict else "too_large"
    if text.shortened:
        return "truncated", "shortened"
    return ("truncated", "message_chars") if text.entry.cut else ("kept", "fits")
