"""What is counted of a worker, in Prometheus' words."""

from dataclasses import replace

from prometheus_client import REGISTRY

from service.http.prometheus import MODELS, PrometheusMetrics
from service.observe.metrics import Sizes
from tests.probing import Measured

SIZES = Sizes(
    model="gpt-5",
    blocks=[("tools", 0), ("RUN", 200), ("custom", 3), ("custom", 30)],
    utilization=0.85,
    yielded=[("custom", "block_dropped"), ("FRIENDS_INFO", "block_shortened")],
    decisions=[("annotated", 3)],
    strategy="oldest_first",
    saved=900,
    without_vector=3,
)


def measured(metrics: PrometheusMetrics) -> Measured:
    """Return what metrics say of themselves."""
    return Measured(metrics.text().decode())


def test_everything_is_counted_where_it_belongs() -> None:
    """Each call moves one number, by one."""
    metrics = PrometheusMetrics("sqlite")
    metrics.count("build_requests", "success")
    metrics.count("build_requests", "budget_exceeded")
    metrics.count("duplicates_suppressed", "lease_lost")
    metrics.count("reply_dropped", "no_subscriber")
    metrics.count("dead_letters", "deliveries")
    metrics.count("rows_not_stored", "input")
    metrics.count("events_lost")
    metrics.count("summary_requests", "overtaken")
    metrics.count("config_reloads", "failed")
    metrics.count("tool_refresh", "git", "changed")
    metrics.record_http_request("/v1/build", "POST", "2xx", 0.25)
    metrics.record_duration("fit", 0.25)
    metrics.record_duration("history", 0.5)
    now = measured(metrics)

    assert now("build_requests_total", "success") == now("build_requests_total", "budget_exceeded")
    assert now("build_requests_total", "success") == 1
    assert now("duplicates_suppressed_total", "lease_lost") == 1
    assert now("reply_dropped_total", "no_subscriber") == 1
    assert now("dead_letters_total", "deliveries") == 1
    assert now("rows_not_stored_total", "input") == 1
    assert now("events_lost_total") == 1
    assert now("build_duration_seconds_sum", "fit") == 0.25
    assert now("build_duration_seconds_count", "fit") == 1
    assert now("history_fetch_duration_seconds_sum", "sqlite") == 0.5
    assert now("build_duration_seconds_count", "history") == 0
    assert now("summary_requests_total", "overtaken") == now("config_reloads_total", "failed") == 1
    assert now("tool_refresh_total", "changed", "git") == 1
    assert now("http_requests_total", "POST", "/v1/build", "2xx") == 1
    assert now("http_request_duration_seconds_sum", "/v1/build") == 0.25


def test_counts_stand_at_zero_before_anything_happens() -> None:
    """So that the first one shows as an increase; the version is exposed."""
    families = measured(PrometheusMetrics("sqlite")).families
    counted = {family.name: family.samples for family in families if family.type == "counter"}

    assert counted["contextbuilder_dead_letters"]
    assert all(
        sample.value == 0 for name, each in counted.items() for sample in each if "ctx" in name
    )
    assert "contextbuilder_build_info" in {family.name for family in families}


def test_each_worker_counts_for_itself() -> None:
    """Two in one process share nothing, and nothing gets into the registry of the library."""
    one, two = PrometheusMetrics("sqlite"), PrometheusMetrics("sqlite")
    one.count("reply_dropped", "no_subscriber")

    assert measured(two)("reply_dropped_total", "no_subscriber") == 0
    assert not [each for each in REGISTRY.collect() if each.name.startswith("contextbuilder")]


def test_a_context_is_noted_where_it_belongs() -> None:
    """Each block by its label, the whole by how full it is, and what was left out."""
    metrics = PrometheusMetrics("sqlite")
    for _ in range(2):
        metrics.record_context(SIZES)
    now = measured(metrics)

    assert now("context_tokens_sum", "RUN") == 400
    assert (now("context_tokens_sum", "custom"), now("context_tokens_count", "custom")) == (66, 4)
    assert now("context_tokens_bucket", "custom", "16.0") == 2
    assert now("context_utilization_ratio_bucket", "0.8", "gpt-5") == 0
    assert now("context_utilization_ratio_bucket", "0.9", "gpt-5") == 2
    assert now("blocks_dropped_total", "custom", "block_dropped") == 2
    assert now("blocks_dropped_total", "FRIENDS_INFO", "block_shortened") == 2
    assert now("tokens_saved_total", "oldest_first") == 1800
    assert now("rows_without_vector_total") == 6


def test_no_more_models_are_distinguished_than_are_few() -> None:
    """Who names them all makes no series of each: those beyond share one."""
    metrics = PrometheusMetrics("sqlite")
    for number in range(3 * MODELS):
        metrics.record_context(replace(SIZES, model=f"gpt-{number}"))
        metrics.record_context(replace(SIZES, model="gpt-0"))
    now = measured(metrics)

    assert now("context_utilization_ratio_count", "gpt-0") == 3 * MODELS + 1
    assert now("context_utilization_ratio_count", "other") == 2 * MODELS
    assert now("context_utilization_ratio_count", f"gpt-{MODELS}") == 0
