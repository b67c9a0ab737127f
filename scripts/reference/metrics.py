"""Generate the table of metrics, from the registry of a worker."""

from pathlib import Path
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import MemoryBus
from service.adapters.memory.hub import MemoryHub
from service.http.prometheus import PREFIX, PrometheusMetrics, WorkerGauges

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"

_FROM: Final = "[//]: # (metrics, written by make reference: from here)\n"
_TO: Final = "[//]: # (metrics: to here)\n"

_HEAD: Final = "| Name | Labels | Kind | What |\n| --- | --- | --- | --- |\n"

#: Suffixes of names in the text format, by the kind of metric.
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def page() -> str:
    """Return the present page with a new table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_FROM)
    _, _, after = rest.partition(_TO)
    return f"{before}{_FROM}\n{table()}\n{_TO}{after}"


def table() -> str:
    """Return the table, with one line per metric of the service."""
    metrics = PrometheusMetrics(store="memory")
    metrics.registry.register(WorkerGauges(MemoryBus(MemoryHub(), BusOptions()), lambda: 0))
    rows = [
        _row(family, collector)
        # neither the collectors nor the names of their labels have a public interface
        for collector in metrics.registry._collector_to_names  # noqa: SLF001 - as above
        for family in collector.collect()
        if family.name.startswith(PREFIX)
    ]
    return _HEAD + "".join(rows)


def _row(family: Metric, collector: Collector) -> str:
    labelnames = [*getattr(collector, "_labelnames", ()), *getattr(family, "_labelnames", ())]
    used = [label for sample in family.samples for label in sample.labels if label != "le"]
    labels = ", ".join(f"`{label}`" for label in dict.fromkeys([*labelnames, *used]))
    name = family.name + _SUFFIXES.get(family.type, "")
    return f"| `{name}` | {labels} | {family.type} | {family.documentation} |\n"
