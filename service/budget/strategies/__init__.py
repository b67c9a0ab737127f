"""The strategies by their names. A new one is a file here and a line in the table."""

from typing import Final

from service.budget.groups import Strategy
from service.budget.strategies.composite import Composite
from service.budget.strategies.importance import Importance
from service.budget.strategies.middle_out import MiddleOut
from service.budget.strategies.none import KeepAll
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import Relevance
from service.budget.strategies.stable_window import StableWindow
from service.budget.strategies.summarization import Summarization
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.windows import CountSummary, SlidingWindow, SmartWindow, WindowSize

STRATEGIES: Final[dict[str, Strategy]] = {
    strategy.name: strategy
    for strategy in (
        KeepAll(),
        OldestFirst(),
        MiddleOut(),
        SlidingWindow(),
        WindowSize(),
        SmartWindow(),
        StableWindow(),
        ToolResultClearing(),
        Importance(),
        Relevance(),
        CountSummary(),
        Composite(),
        Summarization(),
    )
}
