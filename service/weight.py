"""How much work a build is, told from its facts before any of it is done."""

from typing import Final

from formatters.friends_info import profile_text
from formatters.model import Facts, Message

#: Characters from which on facts are fitted in a thread, so that the event loop stays free: about
#: 10 ms of CPU where nothing has been counted before.
LARGE: Final = 50_000
#: What a message or a call weighs besides its text, in characters.
WEIGHT: Final = 200
#: What parts for a provider weigh, into which nobody looks.
OPAQUE_WEIGHT: Final = 5_000


def weight(facts: Facts) -> int:
    """Return what showing and fitting facts costs, in characters of text."""
    profile = profile_text(facts.profile) or facts.default_profile
    summaries = (summary.text for summary in facts.summaries)
    texts = (facts.current_input, facts.identity or "", profile, *facts.blocks.values(), *summaries)
    messages = (*facts.history, *facts.run)
    return sum(map(len, texts)) + sum(map(_of_a_message, messages))


def _of_a_message(message: Message) -> int:
    parts = OPAQUE_WEIGHT if message.provider_parts is not None else 0
    return len(message.content) + WEIGHT * (1 + len(message.tool_calls)) + parts
