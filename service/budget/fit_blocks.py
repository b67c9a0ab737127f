"""Share a budget between the blocks: who gives way, in which order, and who never does."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from formatters.model import Block, Count, TrimPolicy
from service.budget.counting import block_tokens, measure
from service.budget.decisions import BlockOutcome, Decision
from service.budget.fit_history import fit_history, placeholder_only
from service.budget.fit_recall import (
    FittedRecall,
    RankRows,
    RecallOutcome,
    RecallRequest,
    fit_recall,
)
from service.budget.fit_run import fit_run, newest_alone
from service.budget.groups import StableBudget, Strategy, has_stable_prefix, recalls
from service.budget.strategies.oldest_first import OldestFirst
from service.errors import BudgetExceededError

#: Of the tokens that the blocks which stay leave to others, what history may have in every build.
STABLE_SHARE: Final = 7 / 8
#: How blocks give way that a request brings along; the next one may bring others.
_ITS_OWN: Final = TrimPolicy.WHOLE

#: What history would take that is chosen by score: as much as the newest turns do.
_NEWEST: Final = OldestFirst()


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
    #: Scores rows of history for a strategy that has them recalled.
    rank: RankRows | None = None
    #: Of these, what history may have in every build, whatever is asked; None where nobody wants
    #: to know.
    stable_tokens: int | None = None

    @property
    def claims(self) -> Strategy:
        """Return what tells how much history would take."""
        return _NEWEST if recalls(self.strategy) else self.strategy


@dataclass(frozen=True, slots=True)
class ReducedBlock:
    """A block other than history that gave way."""

    tag: str
    #: ``block_dropped`` or ``block_shortened``.
    code: str


@dataclass(frozen=True, kw_only=True)  # no slots: decisions are remembered
class Fitted:
    """Blocks that fit, and the account of how they came to."""

    blocks: tuple[Block, ...]
    #: Tokens of each block's message, by tag, and of the ``tools`` array.
    tokens: dict[str, int]
    tools: int = 0
    #: What became of the candidates, by the blocks that they were in.
    outcomes: tuple[BlockOutcome | RecallOutcome, ...] = ()
    reduced_blocks: tuple[ReducedBlock, ...] = ()
    insufficient: bool = False

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate; they are made when this is first asked."""
        return tuple(decision for fates in self.outcomes for decision in fates.decisions)


def fit_blocks(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Fit blocks into a budget.

    First the run in flight gives way, then history, then the blocks that a request brought along,
    then the details of the capabilities, then the end of the profile.

    Raises:
        BudgetExceededError: The protected parts alone do not fit, or the strategy ``none`` leaves
            more than the budget holds.
    """
    if budget.strategy.name == "none":
        return _all_or_nothing(blocks, budget, count)
    rows = next((block for block in blocks if block.gives_way is TrimPolicy.BY_SCORE), None)
    standing = [block for block in blocks if block is not rows]
    runs = {b.tag: fit_run(b, _run_room(standing, budget, count), count) for b in _runs(standing)}
    least = [runs[b.tag].block if b.tag in runs else _least(b, budget, count) for b in standing]
    shrunk, yielded = _make_room(least, budget, count)
    rest = budget.tools + _total((b for b in shrunk if not _is_history(b)), count)
    room = min(budget.available - rest, budget.memory or budget.available)
    steady = _steady(shrunk, budget, count)
    history = [_history(b, rows, steady, room, count) for b in standing if _is_history(b)]
    parts: dict[str, tuple[Block, ...]] = {block.tag: (block,) for block in shrunk}
    parts.update(pair for fitted in history for pair in fitted.parts.items())
    sent = tuple(part for block in blocks for part in parts.get(block.tag, ()))
    return Fitted(
        blocks=sent,
        tokens=measure(sent, count),
        tools=budget.tools,
        outcomes=(*(part.outcome for part in history), *(run.outcome for run in runs.values())),
        reduced_blocks=yielded,
        insufficient=any(part.history.insufficient for part in history),
    )


def _steady(blocks: Sequence[Block], budget: Budget, count: Count) -> Budget:
    """Tell the strategy what history may have in every build, if it asks for that.

    Where history is not bound otherwise, a share is left to what changes from build to build.
    """
    if not has_stable_prefix(budget.strategy):
        return budget
    stays = (b for b in blocks if not (_is_history(b) or b.volatile or b.gives_way is _ITS_OWN))
    left = max(budget.available - budget.tools - _total(stays, count), 0)
    tokens = min(int(left * STABLE_SHARE), budget.memory or left)
    return replace(budget, stable_tokens=tokens)


def _history(
    block: Block, rows: Block | None, budget: Budget, room: int, count: Count
) -> FittedRecall:
    """Fit history, with what is recalled where there are rows for it and a strategy that does."""
    strategy = budget.strategy
    if budget.stable_tokens is not None and has_stable_prefix(strategy):
        strategy = strategy.with_stable_budget(
            StableBudget(budget.stable_tokens, whole=not block.moves)
        )
    if rows and budget.rank and recalls(strategy):
        return fit_recall(block, RecallRequest(rows, strategy, budget.rank), room, count)
    history = fit_history(block, strategy, room, count)
    return FittedRecall(block, history, history.outcome)


def _is_history(block: Block) -> bool:
    return block.gives_way is TrimPolicy.BY_STRATEGY


def _runs(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if block.gives_way is TrimPolicy.ALL_BUT_NEWEST]


def _total(blocks: Iterable[Block], count: Count) -> int:
    return sum(measure(blocks, count).values())


def _least(block: Block, budget: Budget, count: Count) -> Block:
    """Return the least that a block must be given before others give way."""
    if block.gives_way is TrimPolicy.ALL_BUT_NEWEST:
        return newest_alone(block)
    if not _is_history(block):
        return block
    least = placeholder_only(block)
    if len(block.entries) > block_tokens(least, count):  # an entry takes a token at least
        return least
    # the placeholder, unless the whole of it takes less and the strategy leaves it whole
    tokens = block_tokens(block, count)
    if tokens >= block_tokens(least, count):
        return least
    kept = fit_history(block, budget.claims, tokens, count).block.entries
    return block if len(kept) == len(block.entries) else least


def _run_room(blocks: Sequence[Block], budget: Budget, count: Count) -> int:
    """Return the tokens that the run in flight may have beside the other blocks.

    It gives way to history, but to no more of it than half of what both share: a long history
    would otherwise leave nothing of any run, and the model would call its tools over and over.
    History claims what its strategy would choose, not what there is.
    """
    least = [_least(block, budget, count) for block in blocks]
    spare = max(budget.available - budget.tools - _total(least, count), 0)
    held = _total((b for b in least if _is_history(b)), count)
    room = min(held + spare, budget.memory or budget.available)
    wanted = (fit_history(b, budget.claims, room, count) for b in blocks if _is_history(b))
    claimed = max(sum(_total(part.blocks, count) for part in wanted) - held, 0)
    return _total(_runs(least), count) + spare - min(claimed, spare // 2)


def _all_or_nothing(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Keep everything in full, or refuse: what the strategy ``none`` means."""
    tokens = measure(blocks, count)
    over = budget.tools + sum(tokens.values()) - budget.available
    if over > 0:
        raise _exceeded("the strategy none leaves nothing out: all parts", tokens, budget)
    histories = [fit_history(b, budget.strategy, None, count) for b in blocks if _is_history(b)]
    runs = [fit_run(b, budget.available, count) for b in _runs(blocks)]
    fates = (*(part.outcome for part in histories), *(run.outcome for run in runs))
    return Fitted(blocks=tuple(blocks), tokens=tokens, tools=budget.tools, outcomes=fates)


def _make_room(
    blocks: Sequence[Block], budget: Budget, count: Count
) -> tuple[list[Block], tuple[ReducedBlock, ...]]:
    """Let blocks give way, in the order of `_WAYS`, until what is left fits."""
    limit = budget.available - budget.tools
    left = list(blocks)
    total = _total(left, count)
    yielded: list[ReducedBlock] = []
    for way, smaller in _WAYS:
        for block in reversed([block for block in blocks if block.gives_way is way]):
            if total <= limit:
                break
            forms = _forms(left, block, smaller)
            steps = range(smaller.steps(block))
            fits = partial(_fits, forms, limit, count)
            first = bisect_left(steps, True, key=fits)
            shrunk = forms(min(first, len(steps) - 1))
            size = _total(shrunk, count)
            if size < total:
                gone = len(shrunk) < len(left)
                yielded.append(
                    ReducedBlock(block.tag, "block_dropped" if gone else "block_shortened")
                )
                left, total = shrunk, size
    if total > limit:
        raise _exceeded("the parts that may not be left out", measure(left, count), budget)
    return left, tuple(yielded)


def _fits(forms: Callable[[int], list[Block]], limit: int, count: Count, step: int) -> bool:
    return _total(forms(step), count) <= limit


def _forms(
    blocks: Sequence[Block], block: Block, smaller: "_Smaller"
) -> Callable[[int], list[Block]]:
    """Return what gives all blocks, with this one so many steps smaller."""

    def form(step: int) -> list[Block]:
        changed = smaller.form(block, step)
        replaced = (changed if each.tag == block.tag else each for each in blocks)
        return [each for each in replaced if each is not None]

    return form


@dataclass(frozen=True, slots=True)
class _Smaller:
    """The smaller forms of a block, from the largest on."""

    steps: Callable[[Block], int]
    #: The form after so many steps, counted from 0; None where the block is gone.
    form: Callable[[Block, int], Block | None]


def _details(block: Block) -> list[tuple[int, int]]:
    """List level and place of each shorter text, in the order in which they are taken."""
    levels = max((len(entry.shorter) for entry in block.entries), default=0)
    # levels are counted from the last, so that none goes to its least while others have more
    return [
        (level, place)
        for level in reversed(range(levels))
        for place in reversed(range(len(block.entries)))
        if level < len(block.entries[place].shorter)
    ]


def _less_detail(block: Block, step: int) -> Block:
    entries = list(block.entries)
    for level, place in _details(block)[: step + 1]:
        entries[place] = replace(entries[place], text=block.entries[place].shorter[-1 - level])
    return replace(block, entries=tuple(entries))


def _less_tail(block: Block, step: int) -> Block:
    """Cut the end of the only entry, from one character up to all of them."""
    (entry,) = block.entries
    cut = entry.shorten(entry.longest - 1 - step) if entry.shorten else entry
    return replace(block, entries=(cut,))


#: Who gives way, and to which forms, in this order; run and history have given way before.
_WAYS: Final[tuple[tuple[TrimPolicy, _Smaller], ...]] = (
    (TrimPolicy.WHOLE, _Smaller(lambda _: 1, lambda _block, _step: None)),
    (TrimPolicy.BY_DETAIL, _Smaller(lambda block: len(_details(block)), _less_detail)),
    (TrimPolicy.BY_TAIL, _Smaller(lambda block: block.entries[0].longest, _less_tail)),
)


def _exceeded(what: str, sizes: dict[str, int], budget: Budget) -> BudgetExceededError:
    parts = {**sizes, **({"tools": budget.tools} if budget.tools else {})}
    needed = sum(parts.values())
    listed = ", ".join(f"{tag} {size}" for tag, size in parts.items() if size)
    over = needed - budget.available
    return BudgetExceededError(
        f"{what} need {needed} tokens, {over} more than the {budget.available} available: {listed}"
    )
