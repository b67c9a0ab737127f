"""How much work a build is, told from its facts before any of it is done."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from formatters.custom import custom
from formatters.friends_info import read_profile_text
from formatters.model import Block, Facts, Formatter, Message
from formatters.native import native_history, run_so_far
from formatters.recalled import recalled
from formatters.render import join_blocks
from formatters.shared_memory import shared_memory
from prompts.capabilities import capabilities
from prompts.summary import summary_forms
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
    system = join_blocks(texts)
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


#: What a message or a call weighs besides its text, in characters.
WEIGHT: Final = 200
#: What parts for a provider weigh, into which nobody looks.
OPAQUE_WEIGHT: Final = 5_000


def weight(facts: Facts) -> int:
    """Return what showing and fitting facts costs, in characters of text."""
    profile = read_profile_text(facts.profile) or facts.default_profile
    summaries = (summary.text for summary in facts.summaries)
    texts = (facts.current_input, facts.identity or "", profile, *facts.blocks.values(), *summaries)
    messages = (*facts.history, *facts.run)
    return sum(map(len, texts)) + sum(map(_of_a_message, messages))


def _of_a_message(message: Message) -> int:
    parts = OPAQUE_WEIGHT if message.provider_parts is not None else 0
    return len(message.content) + WEIGHT * (1 + len(message.tool_calls)) + parts
