"""How a context is doing, in words and numbers for a display (REPLOID's widget)."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from formatters.model import Row
from service.conversation.pruning import get_context_stats


class ContextStatus(TypedDict):
    """What a display shows."""

    #: ``idle`` without messages, ``warning`` where the history needs pruning.
    state: Literal["idle", "active", "warning"]
    tokens: int
    utilization_percent: int
    message: str


def get_status(history: Sequence[Row], model_name: str = "default") -> ContextStatus:
    """Return the state of a history in a model's window; it can be written as JSON."""
    stats = get_context_stats(history, model_name)
    full = stats["needs_pruning"]
    return {
        "state": "warning" if full else "active" if stats["tokens"] else "idle",
        "tokens": stats["tokens"],
        "utilization_percent": stats["utilization_percent"],
        "message": "Needs pruning" if full else "Healthy",
    }
