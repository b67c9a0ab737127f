"""Errors of a query, given the metrics that a worker exposes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import promql_parser
from prometheus_client import CollectorRegistry
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatchOp,
    MatrixSelector,
    SubqueryExpr,
    VectorSelector,
)

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import MemoryBus
from service.adapters.memory.hub import MemoryHub
from service.errors import CODES
from service.http.prometheus import METRICS, PrometheusMetrics, WorkerGauges

#: The labels that Prometheus adds to everything that it collects.
TARGET: Final = frozenset({"job", "instance"})
#: Functions of what only grows, but for restarts.
OF_COUNTERS: Final = ("rate", "irate", "increase")
#: Functions that say when something is there, of whatever kind it is.
OF_ANY: Final = ("absent", "absent_over_time", "present_over_time")
#: Values of the kind that Grafana puts in place of its variables.
VARIABLES: Final = {"$__rate_interval": "5m", "$__range": "1h", "$job": ".+"}
#: The streams whose entries are counted.
STREAMS: Final = frozenset({"requests", "recalls", "results"})
#: The values of labels, where the code or the configuration names all of them.
VALUES: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    **{(each.name, each.labels[0]): frozenset(each.values) for each in METRICS if each.values},
    ("build_requests", "outcome"): frozenset({"success", *CODES}),
    ("tool_refresh", "outcome"): frozenset({"changed", "unchanged", "failed"}),
    ("check_ok", "check"): frozenset({"worker", "bus", "store"}),
    ("stream_lag_messages", "stream"): STREAMS,
    ("stream_pending_messages", "stream"): STREAMS,
    ("stream_oldest_pending_seconds", "stream"): STREAMS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A series that there is."""

    labels: frozenset[str]
    #: Whether it only grows, but for restarts.
    counts: bool = False
    #: Of labels that take few values, those values.
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)


def reported() -> dict[str, Known]:
    """Return all series that a worker exposes, by name, and Prometheus' own of it."""
    metrics = PrometheusMetrics("postgresql")
    metrics.registry.register(WorkerGauges(MemoryBus(MemoryHub(), BusOptions()), lambda: 0))
    found = {"up": Known(labels=TARGET)}
    for name, labels, kind in _families(metrics.registry):
        short = name.removeprefix("contextbuilder_")
        values = {label: VALUES[short, label] for label in labels if (short, label) in VALUES}
        for suffix, more, counts in _SERIES[kind]:
            all_labels = TARGET | {*labels, *more}
            found[name + suffix] = Known(labels=all_labels, counts=counts, values=values)
    return found


#: Of each kind of metric, what is behind its name, the labels it adds, whether it only grows.
_SERIES: Final[Mapping[str, tuple[tuple[str, tuple[str, ...], bool], ...]]] = {
    "counter": (("_total", (), True),),
    "gauge": (("", (), False),),
    "info": (("_info", ("version",), False),),
    "histogram": (("_bucket", ("le",), True), ("_sum", (), True), ("_count", (), True)),
}


def _families(registry: CollectorRegistry) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Give name, labels and kind of each metric, also of those that have no series yet."""
    # collecting names no label of a metric that has counted nothing
    collectors: set[Any] = set(registry._collector_to_names)
    for collector in collectors:
        if hasattr(collector, "_labelnames"):
            yield collector._name, collector._labelnames, collector._type
            continue
        for family in collector.collect():
            samples = {label for sample in family.samples for label in sample.labels}
            yield family.name, (*getattr(family, "_labelnames", ()), *samples), family.type


def faults(query: str, known: Mapping[str, Known]) -> list[str]:
    """Say what is wrong with a query; nothing, where it can give something."""
    for variable, stands_for in VARIABLES.items():
        query = query.replace(variable, stands_for)
    try:
        expression = promql_parser.parse(query)
    except ValueError as error:
        return [f"no query: {error}"]
    return list(_faults(expression, known, ""))


def labels_of(expression: Expr, known: Mapping[str, Known]) -> frozenset[str]:
    """Return the labels of what an expression gives."""
    if isinstance(expression, AggregateExpr):
        return frozenset(_grouped(expression))
    if isinstance(expression, BinaryExpr):
        return labels_of(expression.lhs, known)
    if isinstance(expression, VectorSelector):
        return known[expression.name or ""].labels if expression.name in known else frozenset()
    if isinstance(expression, Call) and expression.func.name in OF_ANY:
        return frozenset()
    inner = frozenset[str]().union(*(labels_of(each, known) for each in _inside(expression)))
    quantile = isinstance(expression, Call) and expression.func.name == "histogram_quantile"
    return inner - {"le"} if quantile else inner


def recorded(rules: Mapping[str, str], known: Mapping[str, Known]) -> dict[str, Known]:
    """Return what recording rules add to the series, by name."""
    return {
        name: Known(labels=labels_of(promql_parser.parse(query), known))
        for name, query in rules.items()
    }


def selected(query: str) -> set[str]:
    """Return the names of the series that a query looks at."""
    for variable, stands_for in VARIABLES.items():
        query = query.replace(variable, stands_for)
    return {each.name or "" for each in _selectors(promql_parser.parse(query))}


def _faults(expression: Expr, known: Mapping[str, Known], function: str) -> Iterator[str]:
    if isinstance(expression, VectorSelector):
        yield from _selector_faults(expression, known, function)
    elif isinstance(expression, AggregateExpr):
        yield from _grouping_faults(expression, known)
    elif isinstance(expression, Call) and expression.func.name == "histogram_quantile":
        yield from _quantile_faults(expression, known)
    name = expression.func.name if isinstance(expression, Call) else function
    for inner in _inside(expression):
        yield from _faults(inner, known, name)


def _selector_faults(
    selector: VectorSelector, known: Mapping[str, Known], function: str
) -> Iterator[str]:
    series = known.get(selector.name or "")
    if series is None:
        yield f"no series {selector.name}"
        return
    if function in OF_COUNTERS and not series.counts:
        yield f"{function} of {selector.name}, which goes up and down"
    if function not in (*OF_COUNTERS, *OF_ANY) and series.counts:
        yield f"{selector.name} without rate: restarts set it back"
    for matcher in selector.matchers.matchers:
        if matcher.name not in series.labels:
            yield f"{selector.name} has no label {matcher.name}"
        taken = series.values.get(matcher.name)
        if taken is not None and (missing := _missing(matcher, taken)):
            yield f"{matcher.name} of {selector.name} is never {', '.join(missing)}"


def _missing(matcher: Any, taken: frozenset[str]) -> list[str]:
    """Return what a matcher asks for that is no value of the label."""
    asked = [matcher.value]
    if matcher.op in (MatchOp.Re, MatchOp.NotRe):
        asked = matcher.value.split("|")
    return [each for each in asked if not any(re.fullmatch(each, value) for value in taken)]


def _grouping_faults(aggregate: AggregateExpr, known: Mapping[str, Known]) -> Iterator[str]:
    there = labels_of(aggregate.expr, known)
    for label in _grouped(aggregate):
        if label not in there:
            yield f"grouped by {label}, which nothing in it has"
    summed = [each.name or "" for each in _selectors(aggregate.expr)]
    if str(aggregate.op) == "sum" and any("builder_stream_" in name for name in summed):
        yield f"sum of {summed}: every worker reports the same for a stream"


def _quantile_faults(call: Call, known: Mapping[str, Known]) -> Iterator[str]:
    *_, histogram = call.args
    if "le" not in labels_of(histogram, known):
        yield "histogram_quantile without le"
    for selector in _selectors(histogram):
        if not (selector.name or "").endswith("_bucket"):
            yield f"histogram_quantile of {selector.name}"


def _grouped(aggregate: AggregateExpr) -> list[str]:
    if aggregate.modifier is None:
        return []
    assert aggregate.modifier.type == AggModifierType.By, "say by which labels, not without which"
    return aggregate.modifier.labels


def _selectors(expression: Expr) -> Iterator[VectorSelector]:
    if isinstance(expression, VectorSelector):
        yield expression
    for inner in _inside(expression):
        yield from _selectors(inner)


def _inside(expression: Expr) -> list[Expr]:
    """Return the parts of an expression."""
    if isinstance(expression, Call):
        return list(expression.args)
    if isinstance(expression, MatrixSelector):
        return [expression.vector_selector]
    if isinstance(expression, BinaryExpr):
        return [expression.lhs, expression.rhs]
    if isinstance(expression, SubqueryExpr | AggregateExpr):
        return [expression.expr]
    inner = getattr(expression, "expr", None)  # in brackets, or behind a sign
    return [] if inner is None else [inner]
