"""Format facts as blocks, in the order of their layout."""

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
from prompts.summary import list_summary_forms

#: The work of a message or a call besides its text, in characters.
MESSAGE_WORK: Final = 200
#: The work of the opaque parts of a provider, in characters.
OPAQUE_WORK: Final = 5_000


def history(facts: Facts) -> Block:
    """Format the history as the layout shows it, with the summaries that may replace rows."""
    block = native_history(facts) if facts.layout == "chat" else shared_memory(facts)
    return replace(block, forms=list_summary_forms(facts, block)) if facts.summaries else block


def format_blocks(formatters: Sequence[Formatter], facts: Facts) -> tuple[Block, ...]:
    """Format facts as blocks: the current input last but for the run that followed it.

    The request's blocks and the recalled rows precede the block of the last formatter. In the
    chat layout all text before the history shares the system message.
    """
    *leading, moment = (format_block(facts) for format_block in formatters)
    texts = [block for block in leading if not block.native]
    native = [block for block in leading if block.native]
    system = (*texts, *(custom(facts) if facts.blocks else ()))
    if facts.layout == "chat":
        system = join_blocks(system)
    blocks = (*system, *native, *([recalled(facts)] if facts.recalls else ()), moment)
    return (*blocks, run_so_far(facts, next(iter(native), None))) if facts.run else blocks


def work_size(facts: Facts) -> int:
    """Return how much work it is to format and fit facts, in characters of text."""
    profile = read_profile_text(facts.profile) or facts.default_profile
    summaries = (summary.text for summary in facts.summaries)
    texts = (facts.current_input, facts.identity or "", profile, *facts.blocks.values(), *summaries)
    messages = (*facts.history, *facts.run)
    return sum(map(len, texts)) + sum(map(_message_work, messages))


def _message_work(message: Message) -> int:
    opaque = OPAQUE_WORK if message.provider_parts is not None else 0
    return len(message.content) + MESSAGE_WORK * (1 + len(message.tool_calls)) + opaque
