from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from service.http.prometheus import MODELS, ContextSizes
from service.observe.metrics import Sizes
from tests.probing import Measured

SIZES = Sizes(
    model="gpt-5",
    blocks=[("tools", 0), ("RUN", 200), ("custom", 3), ("custom", 30)],
    utilization=0.85,
    yielded=[("custom", "block_dropped"), ("FRIENDS_INFO", "block_shortened")],
    strategy="oldest_first",
    saved=900,
)


def test_a_context_is_noted_where_it_belongs() -> None:
    """Each block by its label, the whole by how full it is, and what was left out."""
    registry = CollectorRegistry()
    sizes = ContextSizes(registry)
    for _ in range(2):
        sizes.note(SIZES)
    now = Measured(generate_latest(registry).decode())

    assert now("context_tokens_sum", "RUN") == 400
    assert (now("context_tokens_sum", "custom"), now("context_tokens_count", "custom")) == (66, 4)
    assert now("context_tokens_bucket", "custom", "16.0") == 2
    assert now("context_utilization_ratio_bucket", "0.8", "gpt-5") == 0
    assert now("context_utilization_ratio_bucket", "0.9", "gpt-5") == 2
    assert now("blocks_dropped_total", "custom", "block_dropped") == 2
    assert now("blocks_dropped_total", "FRIENDS_INFO", "block_shortened") == 2
    assert now("tokens_saved_total", "oldest_first") == 1800


def test_no_more_models_are_told_apart_than_are_few() -> None:
    """Who names them all makes no series of each: those beyond share one."""
    registry = CollectorRegistry()
    sizes = ContextSizes(registry)
    for number in range(3 * MODELS):
        sizes.note(replace(SIZES, model=f"gpt-{number}"))
        sizes.note(replace(SIZES, model="gpt-0"))
    now = Measured(generate_latest(registry).decode())

    assert now("context_utilization_ratio_count", "gpt-0") == 3 * MODELS + 1
    assert now("context_utilization_ratio_count", "other") == 2 * MODELS
    assert now("context_utilization_ratio_count", f"gpt-{MODELS}") == 0
