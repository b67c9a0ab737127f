"""Facts as blocks, in the order that their layout has."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from formatters.custom import custom
from formatters.model import Block, Facts, Formatter
from formatters.native_blocks import native_history, run_so_far
from formatters.recalled import recalled
from formatters.render import in_one_message
from formatters.shared_memory import shared_memory
from prompts.capabilities import capabilities
from prompts.stored import summary_forms
from service.budget.toolset import Toolset

#: The block in whose place the chat layout has native messages.
HISTORY: Final = shared_memory


def arranged(shows: Sequence[Formatter], facts: Facts, toolset: Toolset) -> tuple[Block, ...]:
    """Show facts as blocks.

    The blocks that a request brought along go before the last one, then rows that may be recalled;
    the run so far stands behind it. In the chat layout all before history share the system message.
    """
    *leading, last = shows
    chat = facts.layout == "chat"
    texts = (
        *(_shown(show, facts, toolset) for show in leading if not chat or show is not HISTORY),
        *custom(facts),
    )
    if not chat:
        return (*texts, *recalled(facts), last(facts), *run_so_far(facts))
    history = _with_summaries(native_history(facts), facts)
    system = in_one_message(texts)
    return (*system, history, *recalled(facts), last(facts), *run_so_far(facts, history))


def _shown(show: Formatter, facts: Facts, toolset: Toolset) -> Block:
    """Show facts as a block; that of the tools is made once for each toolset."""
    if show is capabilities:
        block = toolset.block(facts.tags, lambda: show(facts))
        return replace(block, volatile=True) if toolset.chosen else block
    return _with_summaries(show(facts), facts) if show is HISTORY else show(facts)


def _with_summaries(history: Block, facts: Facts) -> Block:
    if not facts.summaries:
        return history
    return replace(history, forms=summary_forms(facts, history))
