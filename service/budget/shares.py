"""Share a budget between the blocks: who gives way, in which order, and who never does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from formatters.model import Block, Count, Entry, GivesWay
from service.budget.counting import block_tokens, entry_tokens
from service.budget.decisions import Decision
from service.budget.groups import Strategy
from service.budget.history import fit_history, smallest
from service.errors import BudgetExceededError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a context may cost."""

    #: Tokens for everything, the definitions of tools included.
    available: int
    #: Tokens of the ``tools`` array, which nothing shortens.
    tools: int
    strategy: Strategy
    #: Tokens for the message that holds history; None for what the rest leaves.
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Yielded:
    """A block other than history that gave way."""

    tag: str
    #: ``block_dropped`` or ``block_shortened``.
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Blocks that fit, and the account of how they came to."""

    blocks: tuple[Block, ...]
    #: Tokens of each block's message, by tag, and of the ``tools`` array.
    tokens: dict[str, int]
    tools: int = 0
    decisions: tuple[Decision, ...] = ()
    yielded: tuple[Yielded, ...] = ()
    insufficient: bool = False


def fit_blocks(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Fit blocks into a budget.

    First history gives way, then the blocks that a request brought along, then the details of the
    capabilities, then the end of the profile.

    Raises:
        BudgetExceededError: The protected parts alone do not fit, or the strategy ``none`` leaves
            more than the budget holds.
    """
    if budget.strategy.name == "none":
        return _all_or_nothing(blocks, budget, count)
    least = [_least(b, count) if b.gives_way is GivesWay.BY_STRATEGY else b for b in blocks]
    shrunk, yielded = _make_room(least, budget, count)
    rest = budget.tools + sum(
        block_tokens(b, count) for b in shrunk if b.gives_way is not GivesWay.BY_STRATEGY
    )
    room = min(budget.available - rest, budget.memory or budget.available)
    history = {b.tag: fit_history(b, budget.strategy, room, count) for b in _histories(blocks)}
    fitted = tuple(history[b.tag].block if b.tag in history else b for b in shrunk)
    return Fitted(
        blocks=fitted,
        tokens={block.tag: block_tokens(block, count) for block in fitted},
        tools=budget.tools,
        decisions=tuple(d for part in history.values() for d in part.decisions),
        yielded=yielded,
        insufficient=any(part.insufficient for part in history.values()),
    )


def _histories(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if block.gives_way is GivesWay.BY_STRATEGY]


def _least(block: Block, count: Count) -> Block:
    """Return what history must be given: its placeholder, unless the whole of it takes less."""
    return min(block, smallest(block), key=lambda form: block_tokens(form, count))


def _all_or_nothing(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Keep everything in full, or refuse: what the strategy ``none`` means."""
    tokens = {block.tag: block_tokens(block, count) for block in blocks}
    over = budget.tools + sum(tokens.values()) - budget.available
    if over > 0:
        raise _exceeded("the strategy none leaves nothing out: all parts", tokens, budget)
    histories = [fit_history(block, budget.strategy, None, count) for block in _histories(blocks)]
    decisions = tuple(decision for part in histories for decision in part.decisions)
    return Fitted(blocks=tuple(blocks), tokens=tokens, tools=budget.tools, decisions=decisions)


def _make_room(
    blocks: Sequence[Block], budget: Budget, count: Count
) -> tuple[list[Block], tuple[Yielded, ...]]:
    """Let blocks give way, in the order of `_WAYS`, until what is left fits."""
    sizes = {block.tag: block_tokens(block, count) for block in blocks}
    over = budget.tools + sum(sizes.values()) - budget.available
    left = {block.tag: block for block in blocks}
    yielded: list[Yielded] = []
    for way, give_way in _WAYS:
        for block in reversed([block for block in blocks if block.gives_way is way]):
            if over <= 0:
                break
            smaller = give_way(block, over, count)
            size = block_tokens(smaller, count) if smaller else 0
            if size >= sizes[block.tag]:
                continue
            over -= sizes[block.tag] - size
            yielded.append(Yielded(block.tag, "block_shortened" if smaller else "block_dropped"))
            if smaller:
                left[block.tag], sizes[block.tag] = smaller, size
            else:
                del left[block.tag], sizes[block.tag]
    if over > 0:
        raise _exceeded("the parts that may not be left out", sizes, budget)
    return list(left.values()), tuple(yielded)


def _drop(_block: Block, _over: int, _count: Count) -> Block | None:
    return None


def _less_detail(block: Block, over: int, count: Count) -> Block | None:
    """Give entries their shorter texts, a level at a time, the last entry first."""
    excess = over
    entries = list(block.entries)
    # levels are counted from the last, so that none goes to its least while others have more
    for level in reversed(range(max((len(entry.shorter) for entry in entries), default=0))):
        for place in reversed(range(len(entries))):
            shorter = block.entries[place].shorter
            if level >= len(shorter):
                continue
            last = place == len(entries) - 1
            before = _standing(entries[place], count, last=last)
            entries[place] = replace(entries[place], text=shorter[-1 - level])
            excess -= before - _standing(entries[place], count, last=last)
            if excess <= 0:
                return replace(block, entries=tuple(entries))
    return replace(block, entries=tuple(entries))


def _standing(entry: Entry, count: Count, *, last: bool) -> int:
    """Return the tokens of an entry in its place: the last one has no closing newline."""
    return count(entry.text) if last else entry_tokens(entry, count)


def _cut_tail(block: Block, over: int, count: Count) -> Block | None:
    """Cut the end of the only entry, no more of it than has to go."""
    (entry,) = block.entries
    shorten = entry.shorten
    if shorten is None:
        return block
    target = block_tokens(block, count) - over
    best = replace(block, entries=(shorten(0),))
    low, high = 1, entry.longest - 1
    while low <= high:
        middle = (low + high) // 2
        candidate = replace(block, entries=(shorten(middle),))
        if block_tokens(candidate, count) <= target:
            best, low = candidate, middle + 1
        else:
            high = middle - 1
    return best


#: Who gives way, and how, in this order; history has given way before.
_WAYS: Final[tuple[tuple[GivesWay, Callable[[Block, int, Count], Block | None]], ...]] = (
    (GivesWay.WHOLE, _drop),
    (GivesWay.BY_DETAIL, _less_detail),
    (GivesWay.BY_TAIL, _cut_tail),
)


def _exceeded(what: str, sizes: dict[str, int], budget: Budget) -> BudgetExceededError:
    parts = {**sizes, **({"tools": budget.tools} if budget.tools else {})}
    needed = sum(parts.values())
    listed = ", ".join(f"{tag} {size}" for tag, size in parts.items())
    over = needed - budget.available
    return BudgetExceededError(
        f"{what} need {needed} tokens, {over} more than the {budget.available} available: {listed}"
    )
