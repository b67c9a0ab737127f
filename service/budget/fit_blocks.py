"""Fit the blocks of a context into a token budget: which are reduced, in which order, how far."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from formatters.model import OLDER, Block, Count, Tag, TrimPolicy
from service.budget.counting import (
    MAX_CHARS_PER_TOKEN,
    StablePrefix,
    block_tokens,
    find_stable_prefix,
    measure,
)
from service.budget.decisions import Decision, FittedBlock
from service.budget.fit_history import fit_history, fit_run, placeholder_only
from service.budget.fit_recall import RecallInput, fit_recall
from service.budget.groups import StableBudget, Strategy
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import Relevance
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
    #: Whether the tools were chosen for the input, so that the next build may have others.
    tools_chosen: bool = False
    strategy: Strategy
    #: Tokens for everything that holds history; None for what the other blocks leave.
    memory: int | None = None
    #: The question by which recalling strategies rank rows of history, and its time.
    question: str = ""
    now: datetime | None = None
    #: Whether the tokens of rows that aren't recalled are counted for the decisions on them.
    explain: bool = False


@dataclass(frozen=True, kw_only=True)  # no slots: decisions are remembered
class Fitted:
    """The fitted blocks, and their decisions."""

    blocks: tuple[Block, ...]
    #: Tokens of each block, by tag.
    tokens: dict[str, int]
    #: Tokens of the ``tools`` array.
    tools: int = 0
    #: The part of the context that the next build repeats.
    stable_prefix: StablePrefix = field(default_factory=StablePrefix)
    #: The fitted history and the fitted run in flight; None if there is none.
    history: FittedBlock | None = None
    run: FittedBlock | None = None
    #: ``block_dropped`` or ``block_shortened``, by the tags of other blocks.
    reduced_blocks: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the tokens of the whole context."""
        return sum(self.tokens.values()) + self.tools

    def with_block(self, block: Block, count: Count) -> "Fitted":
        """Return the same context with another block in place of the one with its tag.

        It is a message of its own, and not part of the stable prefix.
        """
        blocks = tuple(block if other.tag == block.tag else other for other in self.blocks)
        tokens = {**self.tokens, block.tag: block_tokens(block, count)}
        return replace(self, blocks=blocks, tokens=tokens)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision on every candidate; they are made on first access."""
        fitted = (self.history, self.run)
        return tuple(decision for part in fitted if part for decision in part.decisions)

    @property
    def outcomes(self) -> Counter[str]:
        """Count the candidates by their outcome, without a decision on each."""
        parts = [part.outcomes for part in (self.history, self.run) if part]
        return sum(parts, Counter())


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
        if fitted_history.recall and (recalled := fitted_history.recall.rows.sent):
            sent[recalled.tag] = (recalled,)
    fitted_blocks = [part for block in blocks for part in sent.get(block.tag, ())]
    tokens = measure(fitted_blocks, count)
    return Fitted(
        blocks=tuple(fitted_blocks),
        tokens=tokens,
        tools=budget.tools,
        stable_prefix=find_stable_prefix(
            fitted_blocks, tokens, count, tools_chosen=budget.tools_chosen
        ),
        history=fitted_history,
        run=fitted_run,
        reduced_blocks=reduced_blocks,
    )


def _fit_everything(blocks: Sequence[Block], budget: Budget, count: Count) -> Fitted:
    """Keep every block as it is, or refuse: the strategy ``none``."""
    tokens = measure(blocks, count)
    if sum(tokens.values()) + budget.tools > budget.available:
        reason = "the strategy none leaves nothing out: all parts"
        raise _budget_exceeded(reason, tokens, budget)
    history = _find(blocks, TrimPolicy.BY_STRATEGY)
    run = _find(blocks, TrimPolicy.ALL_BUT_NEWEST)
    return Fitted(
        blocks=tuple(blocks),
        tokens=tokens,
        tools=budget.tools,
        stable_prefix=find_stable_prefix(blocks, tokens, count, tools_chosen=budget.tools_chosen),
        history=fit_history(history, budget.strategy, None, count) if history else None,
        run=fit_run(run, budget.available, count) if run else None,
    )


def _find(blocks: Iterable[Block], policy: TrimPolicy) -> Block | None:
    return next((block for block in blocks if block.gives_way is policy), None)


def _total(blocks: Iterable[Block], count: Count) -> int:
    return sum(measure(blocks, count).values())


# --- run and history -------------------------------------------------------------------------


def _smallest(block: Block, budget: Budget, count: Count) -> Block:
    """Return what a block must have before other blocks are reduced for it."""
    if block.gives_way is TrimPolicy.ALL_BUT_NEWEST:
        return replace(block, entries=block.entries[-1:])
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
        room = min(held + spare, budget.memory or budget.available)
        claimed = room - held  # what a search found fills any room
        if not (budget.strategy.recalls and any(o.reason == OLDER for o in history.omissions)):
            wanted = fit_history(history, _claiming_strategy(budget), room, count)
            claimed = max(_total(wanted.blocks, count) - held, 0)
    newest_group = (block for block in smallest if block.gives_way is TrimPolicy.ALL_BUT_NEWEST)
    return _total(newest_group, count) + spare - min(claimed, spare // 2)


def _claiming_strategy(budget: Budget) -> Strategy:
    """Return the strategy that estimates the size of history; recall fills any room."""
    return _NEWEST if budget.strategy.recalls else budget.strategy


def _fit_history(
    history: Block,
    recallable_rows: Block | None,
    others: Sequence[Block],
    budget: Budget,
    count: Count,
) -> FittedBlock:
    """Fit history into the tokens that the other blocks leave, and recall rows if possible."""
    left = budget.available - budget.tools - _total(others, count)
    room = min(left, budget.memory or budget.available)
    strategy = budget.strategy
    if strategy.stable_prefix:
        # the tokens that history may use in every build, whatever the input: unless it has a limit
        # of its own, a share is left to blocks that change and to those that a request brings along
        unchanging = (
            block
            for block in others
            if not block.volatile and block.gives_way is not TrimPolicy.WHOLE
        )
        spare = max(budget.available - budget.tools - _total(unchanging, count), 0)
        tokens = min(int(spare * STABLE_SHARE), budget.memory or spare)
        strategy = strategy.with_stable_budget(StableBudget(tokens, whole=not history.moves))
    if recallable_rows and isinstance(strategy, Relevance) and (ranker := strategy.rank):
        request = RecallInput(
            recallable_rows,
            strategy,
            rank=lambda passages: ranker(budget.question, passages, budget.now),
            question=budget.question,
            explain=budget.explain,
        )
        return fit_recall(history, request, room, count)
    return fit_history(history, strategy, room, count)


# --- other blocks ----------------------------------------------------------------------------


#: How many smaller forms a block has, and a function that returns one of them by its number, from
#: 0 for the largest; None if it drops the block.
_Forms = tuple[int, Callable[[int], Block | None]]


def _reduce_blocks(
    blocks: Sequence[Block], budget: Budget, count: Count
) -> tuple[list[Block], dict[str, str]]:
    """Reduce blocks in the order of `_REDUCTIONS`, the last of a kind first, until all fit."""
    limit = budget.available - budget.tools
    remaining = list(blocks)
    total = _total(remaining, count)
    reduced: dict[str, str] = {}
    for policy, list_forms in _REDUCTIONS:
        for block in reversed([block for block in blocks if block.gives_way is policy]):
            if total <= limit:
                break
            smaller = _reduce(remaining, block, list_forms(block), limit, count)
            size = _total(smaller, count)
            if size < total:
                dropped = len(smaller) < len(remaining)
                reduced[block.tag] = "block_dropped" if dropped else "block_shortened"
                remaining, total = smaller, size
    if total > limit:
        tokens = measure(remaining, count)
        raise _budget_exceeded("the parts that may not be left out", tokens, budget)
    return remaining, reduced


def _reduce(
    blocks: Sequence[Block], block: Block, forms: _Forms, limit: int, count: Count
) -> list[Block]:
    """Return all blocks with one in its largest form that fits, or in its smallest."""
    length, get_form = forms

    def with_form(number: int) -> list[Block]:
        form = get_form(number)
        replaced = (form if other.tag == block.tag else other for other in blocks)
        return [other for other in replaced if other is not None]

    def fits(number: int) -> bool:
        smaller = with_form(number)
        reduced = (each for each in smaller if each.tag == block.tag)
        chars = sum(len(entry.text) for each in reduced for entry in each.entries)
        return chars <= limit * MAX_CHARS_PER_TOKEN and _total(smaller, count) <= limit

    return with_form(min(bisect_left(range(length), True, key=fits), length - 1))


def _list_details(block: Block) -> _Forms:
    """Replace one text after the other by a shorter one.

    Levels count from the last, so that no entry is at its shortest while others have more.
    """
    shorter = sorted(
        (
            (level, index, text)
            for index, entry in enumerate(block.entries)
            for level, text in enumerate(reversed(entry.shorter))
        ),
        reverse=True,
    )

    def get_form(number: int) -> Block:
        entries = list(block.entries)
        for _, index, text in shorter[: number + 1]:
            entries[index] = replace(entries[index], text=text)
        return replace(block, entries=tuple(entries))

    return len(shorter), get_form


def _list_tails(block: Block) -> _Forms:
    """Cut the end of the only entry, from one character to all of them."""
    (entry,) = block.entries

    def get_form(number: int) -> Block:
        shorter = entry.shorten(entry.longest - 1 - number) if entry.shorten else entry
        return replace(block, entries=(shorter,))

    return entry.longest, get_form


#: The order in which blocks are reduced once run and history are at their smallest.
_REDUCTIONS: Final[tuple[tuple[TrimPolicy, Callable[[Block], _Forms]], ...]] = (
    (TrimPolicy.WHOLE, lambda _block: (1, lambda _number: None)),
    (TrimPolicy.BY_DETAIL, _list_details),
    (TrimPolicy.BY_TAIL, _list_tails),
)


#: Tokens up to which a system message is about as short as `prompts.identity: plain` makes it.
_SHORT_IDENTITY: Final = 200

#: What is said where a longer system message takes the most tokens.
_SHORTER_IDENTITY: Final = (
    "; the system message, CORE_IDENTITY, is the largest with {}: shorten it with"
    " prompts.identity: plain or prompts.identity_file"
)


def _budget_exceeded(what: str, tokens: dict[str, int], budget: Budget) -> BudgetExceededError:
    parts = {**tokens, **({"tools": budget.tools} if budget.tools else {})}
    needed = sum(parts.values())
    sizes = ", ".join(f"{tag} {size}" for tag, size in parts.items() if size)
    excess = needed - budget.available
    identity = tokens.get(Tag.CORE_IDENTITY, 0)
    is_largest = identity > _SHORT_IDENTITY and identity == max(parts.values())
    return BudgetExceededError(
        f"{what} need {needed} tokens, {excess} more than the {budget.available} available: "
        f"{sizes}{_SHORTER_IDENTITY.format(identity) if is_largest else ''}",
        needed=needed,
        available=budget.available,
    )
