"""neuron-context's strategy that asks a model for a summary of all but the newest messages."""

from collections.abc import Sequence
from typing import Final

from formatters.model import Row
from service.budget.groups import Group
from service.budget.strategies.sliding_window import SlidingWindow
from service.conversation.compacting import Summarizes
from service.conversation.strategy import DEFAULT_COUNTER, ContextStrategy, MessageCounter
from service.conversation.units import read_units

#: Stands above a summary, by the source.
PREFIX: Final = "[Summary of earlier conversation]"

#: Tokens of a summary at most, by the source.
SUMMARY_TOKENS: Final = 1024


class SummarizationStrategy(ContextStrategy):
    """Put a summary in the place of all but the newest ``preserve_recent`` messages.

    System messages stay, ahead of it. ``provider`` is a `service.ports.Summarizer`, and what it
    raises comes through. Messages that open with ``prefix``, before all others, are earlier
    summaries and stay; a summary that is no shorter than what it stands for is thrown away. Asks
    to act above ``max_tokens``.
    """

    name = "summarization"

    def __init__(
        self,
        provider: Summarizes,
        preserve_recent: int,
        max_tokens: int,
        counter: MessageCounter = DEFAULT_COUNTER,
        *,
        prefix: str = PREFIX,
    ) -> None:
        self.max_tokens = max_tokens
        self.counter = counter
        self._provider = provider
        self._window = SlidingWindow(window_size=preserve_recent)
        self._prefix = prefix

    def apply_context_strategy(
        self,
        messages: Sequence[Row],
        system_prompt: str | None = None,  # noqa: ARG002 - the source's signature
    ) -> list[Row]:
        """Return all messages: a summary has to be waited for."""
        return read_units(messages).all_rows()

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return system messages, summaries, and the newest messages."""
        units = read_units(messages).hoisted()
        groups = units.groups(lambda row: self.token_estimate((row,)))
        earlier = self._earlier(groups)
        rest = groups[len(earlier) :]
        kept = {group.index for group in self._window.fit(rest, 0).kept}
        old = [group for group in rest if group.index not in kept]
        if not old:
            return units.all_rows()
        text = await self._provider.summarize(
            [message for group in old for message in group.messages], max_tokens=SUMMARY_TOKENS
        )
        summary = {"role": "user", "content": f"{self._prefix}\n{text}"}
        if not self._gains(text, summary, old):
            return units.all_rows()
        ahead = units.rows(earlier)
        recent = units.rows([*earlier, *(group for group in rest if group.index in kept)])
        return [*ahead, summary, *recent[len(ahead) :]]

    def _gains(self, text: str, summary: Row, old: Sequence[Group]) -> bool:
        shorter = self.token_estimate((summary,)) < sum(group.tokens for group in old)
        return bool(text.strip()) and shorter

    def _earlier(self, groups: Sequence[Group]) -> list[Group]:
        """Return the summaries that the conversation opens with."""
        earlier: list[Group] = []
        for group in groups:
            (message, *_) = group.messages
            if not message.content.startswith(f"{self._prefix}\n"):
                break
            earlier.append(group)
        return earlier
