"""Fit the blocks of a context into a token budget: which are reduced, in which order, how far."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from formatters.model import Block, Count, TrimPolicy
from service.budget.counting import block_tokens, measure
from service.budget.decisions import Decision, FittedBlock
from service.budget.fit_history import fit_history, placeholder_only
from service.budget.fit_recall import RankRows, RecallRequest, fit_recall
from service.budget.fit_run import fit_run, newest_group_only
from service.budget.groups import StableBudget, Strategy, has_stable_prefix
from service.budget.stable_prefix import StablePrefix, find_stable_prefix
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import recalls
from service.errors import BudgetExceededError

#: The share of the tokens left by unchanging blocks that history may use in every build.
STABLE_SHARE: Final = 7 / 8

_NEWEST: Final = OldestFirst()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The tokens of a context, and how history is chosen."""

    #: Tokens for everything, the definitions of tools included.
    available: int
    #: Tokens of the ``tools`` array, which nothing shortens.
    tools: int
    strategy: Strategy
    #: Tokens for everything that holds history; None for what the other blocks leave.
    memory: int | None = None
    #: Scores rows of history, for a strategy that recalls them.
    rank: RankRows | None = None

    @property
    def largest_history(self) -> int:
        """Return the tokens that history can have at most."""
        return self.memory or self.available


@dataclass(frozen=True, slots=True)
class ReducedBlock:
    """A block, other than history and run, that was shortened or dropped."""

    tag: str
    #: ``block_dropped`` or ``block_shortened``.
    code: str


@dataclass(frozen=True, kw_only=True)  # no slots: decisions are remembered
class Fitted:
    """The fitted blocks, and the decisions behind them."""

    blocks: tuple[Block, ...]
    #: Tokens of each block, by tag.
    tokens: dict[str, int]
    #: Tokens of the ``tools`` array.
    tools: int = 0
    #: What of the context the next build repeats.
    stable_prefix: StablePrefix = field(default_factory=StablePrefix)
    #: What was chosen of history, and of the run in flight; None if there is none.
    history: FittedBlock | None = None
    run: FittedBlock | None = None
    reduced_blocks: tuple[ReducedBlock, ...] = ()

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate; they are made on first access."""
        fitted = (self.history, self.run)
        return tuple(decision for part in fitted if part for decision in part.decisions)


def fit_blocks(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Fit blocks into a budget.

    They are reduced in this order, each no further than necessary: the run in flight, history,
    the blocks that the request brought along, the details of tools, the end of the profile.

    Raises:
        BudgetExceededError: The protected parts alone don't fit, or the strategy is ``none`` and
            not everything fits.
    """
    if budget.strategy.name == "none":
        return _fit_everything(blocks, budget, count)
    history = _find(blocks, TrimPolicy.BY_STRATEGY)
    run = _find(blocks, TrimPolicy.ALL_BUT_NEWEST)
    recallable_rows = _find(blocks, TrimPolicy.BY_SCORE)

    smallest = [_smallest(block, budget, count) for block in blocks if block is not recallable_rows]
    fitted_run = None
    if run:
        fitted_run = fit_run(run, _run_room(smallest, history, budget, count), count)
        smallest = [fitted_run.block if block.tag == run.tag else block for block in smallest]
    remaining, reduced_blocks = _reduce_blocks(smallest, budget, count)
    others = [block for block in remaining if not block.is_history]

    sent: dict[str, tuple[Block, ...]] = {block.tag: (block,) for block in others}
    fitted_history = None
    if history:
        fitted_history = _fit_history(history, recallable_rows, others, budget, count)
        sent[history.tag] = fitted_history.blocks
        if fitted_history.recall and fitted_history.recall.sent:
            sent[fitted_history.recall.sent.tag] = (fitted_history.recall.sent,)
    fitted_blocks = [part for block in blocks for part in sent.get(block.tag, ())]
    fitted = _measured(fitted_blocks, budget, count)
    return replace(fitted, history=fitted_history, run=fitted_run, reduced_blocks=reduced_blocks)


def _fit_everything(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Keep every block as it is, or refuse: the strategy ``none``."""
    fitted = _measured(blocks, budget, count)
    if fitted.tools + sum(fitted.tokens.values()) > budget.available:
        reason = "the strategy none leaves nothing out: all parts"
        raise _budget_exceeded(reason, fitted.tokens, budget)
    history = _find(blocks, TrimPolicy.BY_STRATEGY)
    run = _find(blocks, TrimPolicy.ALL_BUT_NEWEST)
    return replace(
        fitted,
        history=fit_history(history, budget.strategy, None, count) if history else None,
        run=fit_run(run, budget.available, count) if run else None,
    )


def _measured(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Return blocks as they are sent with their tokens."""
    tokens = measure(blocks, count)
    prefix = find_stable_prefix(blocks, tokens, count)
    return Fitted(blocks=tuple(blocks), tokens=tokens, tools=budget.tools, stable_prefix=prefix)


def _find(blocks: Iterable[Block], policy: TrimPolicy) -> Block | None:
    return next((block for block in blocks if block.gives_way is policy), None)


def _total(blocks: Iterable[Block], count: Count) -> int:
    return sum(measure(blocks, count).values())


# --- run and history -------------------------------------------------------------------------


def _smallest(block: Block, budget: Budget, count: Count) -> Block:
    """Return what a block must have before other blocks are reduced for it."""
    if block.gives_way is TrimPolicy.ALL_BUT_NEWEST:
        return newest_group_only(block)
    if not block.is_history:
        return block
    # a history that is smaller than its placeholder stays, if the strategy keeps all of it
    placeholder = placeholder_only(block)
    placeholder_tokens = block_tokens(placeholder, count)
    if len(block.entries) > placeholder_tokens:  # an entry has a token at least
        return placeholder
    tokens = block_tokens(block, count)
    if tokens >= placeholder_tokens:
        return placeholder
    kept = fit_history(block, _claiming_strategy(budget), tokens, count).block.entries
    return block if len(kept) == len(block.entries) else placeholder


def _run_room(
    smallest: Sequence[Block], history: Block | None, budget: Budget, count: Count
) -> int:
    """Return the tokens that the run in flight may use.

    History takes precedence over the run, but only up to half of what the two share: otherwise a
    long history would leave a run without its results, and the model would call its tools again and
    again. History claims what its strategy would choose, not all of its tokens.
    """
    spare = max(budget.available - budget.tools - _total(smallest, count), 0)
    claimed = 0
    if history:
        held = _total((block for block in smallest if block.is_history), count)
        room = min(held + spare, budget.largest_history)
        wanted = fit_history(history, _claiming_strategy(budget), room, count)
        claimed = max(_total(wanted.blocks, count) - held, 0)
    newest_group = _total(_only(smallest, TrimPolicy.ALL_BUT_NEWEST), count)
    return newest_group + spare - min(claimed, spare // 2)


def _only(blocks: Sequence[Block], policy: TrimPolicy) -> list[Block]:
    return [block for block in blocks if block.gives_way is policy]


def _claiming_strategy(budget: Budget) -> Strategy:
    """Return the strategy by which to estimate what history takes; recall fills any room."""
    return _NEWEST if recalls(budget.strategy) else budget.strategy


def _fit_history(
    history: Block,
    recallable_rows: Block | None,
    others: Sequence[Block],
    budget: Budget,
    count: Count,
) -> FittedBlock:
    """Fit history into the tokens that the other blocks leave, and recall rows if possible."""
    left = budget.available - budget.tools - _total(others, count)
    room = min(left, budget.largest_history)
    strategy = budget.strategy
    if has_stable_prefix(strategy):
        tokens = _stable_tokens(others, budget, count)
        strategy = strategy.with_stable_budget(StableBudget(tokens, whole=not history.moves))
    if recallable_rows and budget.rank and recalls(strategy):
        request = RecallRequest(recallable_rows, strategy, budget.rank)
        return fit_recall(history, request, room, count)
    return fit_history(history, strategy, room, count)


def _stable_tokens(others: Sequence[Block], budget: Budget, count: Count) -> int:
    """Return the tokens that history may use in every build, whatever the input.

    Unless history has a limit of its own, a share is left to blocks that change from build to build
    and to those that a request brings along.
    """
    unchanging = (
        block for block in others if not block.volatile and block.gives_way is not TrimPolicy.WHOLE
    )
    left = max(budget.available - budget.tools - _total(unchanging, count), 0)
    return min(int(left * STABLE_SHARE), budget.memory or left)


# --- other blocks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reduction:
    """The smaller forms of a block, from the largest to the smallest."""

    #: How many there are.
    forms: Callable[[Block], int]
    #: Return one of them, counted from 0; None if it drops the block.
    apply: Callable[[Block, int], Block | None]


def _reduce_blocks(
    blocks: Sequence[Block], budget: Budget, count: Count
) -> tuple[list[Block], tuple[ReducedBlock, ...]]:
    """Reduce blocks in the order of `_REDUCTIONS`, the last of a kind first, until all fit."""
    limit = budget.available - budget.tools
    remaining = list(blocks)
    total = _total(remaining, count)
    reduced: list[ReducedBlock] = []
    for policy, reduction in _REDUCTIONS:
        for block in reversed(_only(blocks, policy)):
            if total <= limit:
                break
            smaller = _reduce(remaining, block, reduction, limit, count)
            size = _total(smaller, count)
            if size < total:
                dropped = len(smaller) < len(remaining)
                code = "block_dropped" if dropped else "block_shortened"
                reduced.append(ReducedBlock(block.tag, code))
                remaining, total = smaller, size
    if total > limit:
        tokens = measure(remaining, count)
        raise _budget_exceeded("the parts that may not be left out", tokens, budget)
    return remaining, tuple(reduced)


def _reduce(
    blocks: Sequence[Block], block: Block, reduction: _Reduction, limit: int, count: Count
) -> list[Block]:
    """Return all blocks with one in the largest form with which they fit, or in its smallest."""

    def with_form(number: int) -> list[Block]:
        form = reduction.apply(block, number)
        replaced = (form if other.tag == block.tag else other for other in blocks)
        return [other for other in replaced if other is not None]

    def fits(number: int) -> bool:
        return _total(with_form(number), count) <= limit

    forms = range(reduction.forms(block))
    return with_form(min(bisect_left(forms, True, key=fits), len(forms) - 1))


def _shorter_texts(block: Block) -> list[tuple[int, int]]:
    """List level and entry of each shorter text, in the order in which they are used.

    Levels count from the last, so that no entry is at its shortest while others have more.
    """
    levels = max((len(entry.shorter) for entry in block.entries), default=0)
    return [
        (level, index)
        for level in reversed(range(levels))
        for index in reversed(range(len(block.entries)))
        if level < len(block.entries[index].shorter)
    ]


def _with_less_detail(block: Block, number: int) -> Block:
    entries = list(block.entries)
    for level, index in _shorter_texts(block)[: number + 1]:
        entries[index] = replace(entries[index], text=block.entries[index].shorter[-1 - level])
    return replace(block, entries=tuple(entries))


def _without_tail(block: Block, number: int) -> Block:
    """Cut the end of the only entry, from one character to all of them."""
    (entry,) = block.entries
    if entry.shorten:
        entry = entry.shorten(entry.longest - 1 - number)
    return replace(block, entries=(entry,))


#: The order in which blocks are reduced once run and history are at their smallest.
_REDUCTIONS: Final[tuple[tuple[TrimPolicy, _Reduction], ...]] = (
    (TrimPolicy.WHOLE, _Reduction(lambda _block: 1, lambda _block, _number: None)),
    (TrimPolicy.BY_DETAIL, _Reduction(lambda block: len(_shorter_texts(block)), _with_less_detail)),
    (TrimPolicy.BY_TAIL, _Reduction(lambda block: block.entries[0].longest, _without_tail)),
)


def _budget_exceeded(what: str, tokens: dict[str, int], budget: Budget) -> BudgetExceededError:
    parts = {**tokens, **({"tools": budget.tools} if budget.tools else {})}
    needed = sum(parts.values())
    sizes = ", ".join(f"{tag} {size}" for tag, size in parts.items() if size)
    excess = needed - budget.available
    return BudgetExceededError(
        f"{what} need {needed} tokens, {excess} more than the {budget.available} available: {sizes}"
    )
