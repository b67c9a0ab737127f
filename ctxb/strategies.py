"""The strategies, with their parameters, and the types for custom strategies."""

from service.budget.groups import (
    Fit,
    Group,
    GroupDecision,
    StableBudget,
    Strategy,
    SummaryCandidate,
    cost,
    make_fit,
    newest_that_fit,
    suffix_costs,
)
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
from service.recall.ranking import RELEVANCE

__all__ = [
    "RELEVANCE",
    "Composite",
    "CountSummary",
    "Fit",
    "Group",
    "GroupDecision",
    "Importance",
    "KeepAll",
    "MiddleOut",
    "OldestFirst",
    "Relevance",
    "SlidingWindow",
    "SmartWindow",
    "StableBudget",
    "StableWindow",
    "Strategy",
    "Summarization",
    "SummaryCandidate",
    "ToolResultClearing",
    "WindowSize",
    "cost",
    "make_fit",
    "newest_that_fit",
    "suffix_costs",
]
