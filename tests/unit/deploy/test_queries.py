"""Every query that we ship uses metrics that a worker exposes, in a valid way."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.promql import Known, faults, labels_of, recorded, reported, selected

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads(
    (ROOT / "deploy/grafana/dashboards/context-builder.json").read_text(encoding="utf-8")
)
ALERTS_PAGE = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """Return the rules that record, or that alert, by name."""
    return {
        rule[kind]: rule for group in RULES["groups"] for rule in group["rules"] if kind in rule
    }


def panels() -> list[dict[str, Any]]:
    """Return the panels that show something."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> dict[str, str]:
    """Return all queries, by where they are."""
    found = {f"rule {name}": rule["expr"] for name, rule in rules("record").items()}
    found |= {f"alert {name}": rule["expr"] for name, rule in rules("alert").items()}
    for panel in panels():
        for target in panel["targets"]:
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    for page in sorted((ROOT / "docs").glob("*.md")):
        blocks = re.findall(r"^```promql\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)
        for number, block in enumerate(blocks):
            found |= {f"{page.name} {number} {n}": q for n, q in enumerate(block.split("\n\n"))}
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, Known]:
    """Return the series that there are, those that rules record among them."""
    series = reported()
    made = {name: rule["expr"] for name, rule in rules("record").items()}
    return series | recorded(made, series)


@pytest.mark.parametrize("place", queries())
def test_a_query_asks_for_what_there_is(place: str, known: dict[str, Known]) -> None:
    """Its series, labels and values exist, and its functions fit the kind of metric."""
    assert faults(queries()[place], known) == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("contextbuilder_builds_total", "no series"),
        ("rate(contextbuilder_build_in_flight[5m])", "goes up and down"),
        ("contextbuilder_build_requests_total", "without rate"),
        ('rate(contextbuilder_build_requests_total{stage="fit"}[5m])', "no label stage"),
        ('rate(contextbuilder_dead_letters_total{reason="lost"}[5m])', "never lost"),
        ('rate(contextbuilder_dead_letters_total{reason=~"result|lost"}[5m])', "never lost"),
        ("sum by (owner) (rate(contextbuilder_events_lost_total[5m]))", "grouped by owner"),
        ("sum(contextbuilder_stream_lag_messages)", "every worker reports the same"),
        ("histogram_quantile(0.9, sum(rate(contextbuilder_context_tokens_bucket[5m])))", "le"),
        ("histogram_quantile(0.9, rate(contextbuilder_context_tokens_sum[5m]))", "_sum"),
        ("rate(contextbuilder_events_lost_total)", "no query"),
    ],
)
def test_a_wrong_query_is_seen(query: str, fault: str, known: dict[str, Known]) -> None:
    """Each kind of fault that the check is for."""
    assert any(fault in each for each in faults(query, known)), faults(query, known)


def test_every_metric_is_shown(known: dict[str, Known]) -> None:
    """The dashboard has all of ours in some panel."""
    shown = {
        name for panel in panels() for each in panel["targets"] for name in selected(each["expr"])
    }
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known if ":" not in name}
    ours = {name for name in families if name.startswith("contextbuilder_")}

    assert ours - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == set()


def test_every_alert_has_a_runbook() -> None:
    """The page has a section for each alert, and for no others; `runbook_url` is its anchor."""
    sections = re.findall(r"^### (ContextBuilder\w+)$", ALERTS_PAGE, re.MULTILINE)
    urls = [rule["annotations"]["runbook_url"] for rule in rules("alert").values()]

    assert sections == list(rules("alert"))
    assert urls == [f"docs/metrics.md#{name.lower()}" for name in sections]


@pytest.mark.parametrize("name", rules("alert"))
def test_an_alert_says_what_it_is(name: str, known: dict[str, Known]) -> None:
    """With a severity, a summary, and no label in its words that its query does not give."""
    rule = rules("alert")[name]
    words = rule["annotations"]
    used = set(re.findall(r"\$labels\.(\w+)", words["description"]))

    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    assert words["summary"].endswith(".")
    assert used <= labels_of(promql_parser.parse(rule["expr"]), known)


# --- the dashboard ---------------------------------------------------------------------------


def test_the_dashboard_finds_its_data_source() -> None:
    """Provisioned as it is: a variable names the source, and everything refers to it."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    sources = [panel["datasource"]["uid"] for panel in panels()]
    sources += [each["datasource"]["uid"] for panel in panels() for each in panel["targets"]]
    sources.append(variables["job"]["datasource"]["uid"])

    assert DASHBOARD["id"] is None
    assert DASHBOARD["uid"] == "context-builder"
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert set(sources) == {"${datasource}"}
    assert "__inputs" not in DASHBOARD


def test_the_dashboard_asks_for_one_deployment() -> None:
    """Each query takes the chosen jobs, whose names come from a metric of ours."""
    (job,) = (each for each in DASHBOARD["templating"]["list"] if each["name"] == "job")

    assert job["query"]["query"] == "label_values(contextbuilder_build_info, job)"
    for panel in panels():
        for target in panel["targets"]:
            matchers = re.findall(r"\{([^{}]*)\}", target["expr"])
            assert matchers, panel["title"]
            assert all('job=~"$job"' in each for each in matchers), panel["title"]


def test_panels_do_not_lie_on_each_other() -> None:
    """Each has a number and a place of its own, within the 24 columns."""
    places = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for where in [panel["gridPos"]]
        for x in range(where["x"], where["x"] + where["w"])
        for y in range(where["y"], where["y"] + where["h"])
    ]
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(places) == len(set(places))
    assert max(x for x, _ in places) == 23
    assert len(numbers) == len(set(numbers))


def test_panels_say_what_they_show() -> None:
    """Each has a title and a sentence; each line of a chart has a name."""
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        if panel["type"] == "timeseries":
            assert all(each["legendFormat"] for each in panel["targets"]), panel["title"]
            used = {
                label
                for each in panel["targets"]
                for label in re.findall(r"{{(\w+)}}", each["legendFormat"])
                if label not in each["expr"]
            }
            assert used == set(), panel["title"]
