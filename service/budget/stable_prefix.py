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
    #: How many of the messages are complete and don't grow, as `[SHARED_MEMORY]` does.
    messages: int = 0


def find_stable_prefix(
    blocks: Sequence[Block], tokens: Mapping[str, int], count: Count
) -> StablePrefix:
    """Find the stable prefix of blocks as they are sent, whose ``tokens`` are given by tag.

    History may grow at its end, so it is the last stable block. If the tools were chosen for the
    input, nothing is stable, as providers put them first; while a run goes on they don't change.
    """
    run_goes_on = any(block.gives_way is TrimPolicy.ALL_BUT_NEWEST for block in blocks)
    if not run_goes_on and any(block.is_tools and block.volatile for block in blocks):
        return StablePrefix()
    stable: list[Block] = []
    total = 0
    for block in blocks:
        if not (_is_repeated(block) or block.is_tools):
            break
        entries = tuple(takewhile(lambda entry: not entry.volatile, block.entries))
        if len(entries) < len(block.entries):
            stable.append(replace(block, entries=entries))
            total += block_tokens(stable[-1], count)
            break
        stable.append(block)
        total += tokens[block.tag]
        if block.is_history:
            break
    complete = render(block for block in stable if block.native or not block.is_history)
    return StablePrefix(tokens=total, messages=len(complete))


def _is_repeated(block: Block) -> bool:
    """Return whether the next build has a block as it is, or with more entries at its end."""
    has_placeholder = block.is_history and not block.entries
    return not (block.volatile or block.moves or has_placeholder)
