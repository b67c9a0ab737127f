"""The beginning of a context that the next build repeats, so that a provider's cache is hit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from formatters.model import Block, Count, TrimPolicy
from formatters.render import render
from service.budget.counting import block_tokens


@dataclass(frozen=True, slots=True)
class StablePrefix:
    """The messages before the first entry that changes from build to build."""

    tokens: int = 0
    #: How many whole messages of it don't grow either, as `[SHARED_MEMORY]` does.
    messages: int = 0


def find_stable_prefix(
    blocks: Sequence[Block], tokens: Mapping[str, int], count: Count, *, tools_chosen: bool
) -> StablePrefix:
    """Find the stable prefix of blocks as they are sent, whose ``tokens`` are given by tag.

    History may grow at its end, so it is the last stable block. Tools that were chosen for the
    input (``tools_chosen``) change with it, and nothing is stable; while a run goes on they stay.
    """
    run_goes_on = any(block.gives_way is TrimPolicy.ALL_BUT_NEWEST for block in blocks)
    if tools_chosen and not run_goes_on:
        return StablePrefix()
    stable: list[Block] = []
    total = 0
    for block in blocks:
        has_chosen_tools = tools_chosen and block.gives_way is TrimPolicy.BY_DETAIL
        if not (_is_repeated(block) or has_chosen_tools):
            break
        entries = tuple(takewhile(lambda entry: not entry.volatile, block.entries))
        if len(entries) < len(block.entries):
            stable.append(replace(block, entries=entries))
            total += block_tokens(stable[-1], count)
            break
        stable.append(block)
        total += tokens[block.tag]
        if _is_history(block):
            break
    complete = render(block for block in stable if block.native or not _is_history(block))
    return StablePrefix(tokens=total, messages=len(complete))


def _is_repeated(block: Block) -> bool:
    """Tell whether the next build has a block as it is, or with more entries at its end."""
    has_placeholder = _is_history(block) and not block.entries
    return not (block.volatile or block.moves or has_placeholder)


def _is_history(block: Block) -> bool:
    return block.gives_way is TrimPolicy.BY_STRATEGY
