"""The table of strategies with what ranks passages in it."""

from collections.abc import Mapping
from typing import Final

from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.relevance import Relevance
from service.recall.ranking import rank

RELEVANCE: Final = Relevance(rank=rank)

#: All strategies that come with the service, as they work in it.
RANKING_STRATEGIES: Final[Mapping[str, Strategy]] = {**STRATEGIES, RELEVANCE.name: RELEVANCE}
