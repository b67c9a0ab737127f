"""SPADE_LLM's strategies: applied to a conversation each time a prompt is made of it."""

from service.budget.strategies.none import KeepAll
from service.budget.strategies.smart_window import SmartWindow
from service.budget.strategies.window_size import WindowSize
from service.conversation.strategy import GroupStrategy


class NoContextManagement(GroupStrategy):
    """Keep all messages, mended where no model's API would take them."""

    def __init__(self) -> None:
        super().__init__(KeepAll())


class WindowSizeContext(GroupStrategy):
    """Keep the newest ``max_messages`` messages; system messages stay and are not counted."""

    def __init__(self, max_messages: int = 20) -> None:
        super().__init__(WindowSize(max_messages=max_messages), most=max_messages)
        self.max_messages = max_messages

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Say how many of so many messages stay at most, and under which settings."""
        return {**super().get_stats(total_messages), "max_messages": self.max_messages}


class SmartWindowSizeContext(GroupStrategy):
    """Keep the first ``preserve_initial`` of ``max_messages`` messages, and the newest of the rest.

    With ``prioritize_tools``, calls and their results go before other messages. A group that does
    not go in whole is passed over. System messages stay and are not counted.
    """

    def __init__(
        self,
        max_messages: int = 20,
        preserve_initial: int = 0,
        prioritize_tools: bool = False,
    ) -> None:
        window = SmartWindow(
            max_messages=max_messages,
            preserve_initial=preserve_initial,
            prioritize_tools=prioritize_tools,
        )
        super().__init__(window, most=max_messages)
        self.name = "smart_window_size"  # SPADE_LLM's name, in statistics
        self._window = window

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Say how many of so many messages stay at most, and under which settings."""
        return {
            **super().get_stats(total_messages),
            "max_messages": self._window.max_messages,
            "preserve_initial": self._window.preserve_initial,
            "prioritize_tools": self._window.prioritize_tools,
        }
