"""What contexts came to, as Prometheus wants it."""

from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry

from service.adapters.health.naming import counter, histogram
from service.metrics import OTHER_MODEL, Sizes

#: Tokens: from a word to the largest windows there are.
TOKENS: Final = (16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
#: A context that is nearly full matters more than one that is nearly empty.
RATIOS: Final = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
#: Models that are told apart: the tables have hundreds, and a caller may name them all.
MODELS: Final = 32


class ContextSizes:
    """Takes note of contexts; costs a build some 15 µs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        utilization = histogram(
            registry,
            "context_utilization_ratio",
            "The tokens of a context by those there was room for, from 0 to 1; `model` is the name "
            "that the table of limits or `budget.model_limits` has for it, of the first 32; "
            "`other` for the rest, `none` where a request names none.",
            RATIOS,
            "model",
        )
        self._models: set[str] = set()
        tokens = histogram(
            registry,
            "context_tokens",
            "Tokens of each block of a context, by its tag, and of the array of `tools`; `custom` "
            "is any block that a request brought along.",
            TOKENS,
            "block",
        )
        gave_way = counter(
            registry,
            "blocks_dropped",
            "Blocks other than history that gave way: left out (`block_dropped`) or shortened "
            "(`block_shortened`).",
            "block",
            "reason",
        )
        saved = counter(
            registry,
            "tokens_saved",
            "Tokens of history that was read and not sent, since the strategy left it out, "
            "shortened or cleared it.",
            "strategy",
        )
        # to look a label up takes longer than to count; there are few
        self._utilization = cache(utilization.labels)
        self._tokens = cache(tokens.labels)
        self._gave_way = cache(gave_way.labels)
        self._saved = cache(saved.labels)

    def note(self, sizes: Sizes) -> None:
        """Note what a context came to."""
        self._utilization(self._label(sizes.model)).observe(sizes.utilization)
        for block, tokens in sizes.blocks:
            self._tokens(block).observe(tokens)
        for block, reason in sizes.yielded:
            self._gave_way(block, reason).inc()
        self._saved(sizes.strategy).inc(sizes.saved)

    def _label(self, model: str) -> str:
        if len(self._models) < MODELS:
            self._models.add(model)
        return model if model in self._models else OTHER_MODEL
