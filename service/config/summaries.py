"""Settings of the summaries that stand for older turns, under the strategy `summarization`."""

from typing import Annotated

from pydantic import Field

from service.config.section import Count, Ratio, Seconds, Section


class SummarySettings(Section):
    """When summaries are made, and what they may take of the tokens that history may use."""

    #: False makes no more of them; those that are stored go on to be shown.
    enabled: bool = True
    #: From where on what has no summary should get one.
    trigger_ratio: Ratio = 0.9
    #: What is left at most without a summary, the summaries' own share included.
    target_ratio: Ratio = 0.8
    #: The newest turns, which are never summarised.
    recent_preserve_ratio: Ratio = 0.25
    #: What summaries may take.
    summary_budget_ratio: Ratio = 0.25
    #: For one summary.
    timeout_seconds: Seconds = 60.0
    #: Summaries that are made at the same time.
    concurrency: Annotated[int, Field(ge=1, le=100)] = 1
    #: Histories that wait for one at most.
    max_waiting: Count = 256
