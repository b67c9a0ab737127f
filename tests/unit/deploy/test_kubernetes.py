"""The manifests of Kubernetes and the unit of systemd say what the worker needs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from service.adapters.redis.shards import shard_topic
from service.cli.root import app
from service.config.load import load_settings
from service.config.settings import Settings
from service.wire.protocol import REQUESTS_GROUP

ROOT = Path(__file__).parents[3]
BASE = ROOT / "deploy/kubernetes/base"
#: Seconds that a worker takes to close what it has open where the bus hangs: two looks at it with
#: `bus.socket_timeout_seconds` each, and what the pages, backlogs and spans are given.
CLOSING = 15.0
#: What the Secret holds, as docs/deployment.md has it made.
SECRET = {
    "bus-url": "redis://ctxb:password@redis:6379/0",
    "store-url": "postgresql://ctxb:password@postgres:5432/ctxb",
    "http-token": "sixteen-characters-or-more",
}


def documents(path: str) -> list[dict[str, Any]]:
    """Return the documents of a file."""
    text = (ROOT / "deploy/kubernetes" / path).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def only(path: str) -> Any:
    """Return the document of a file that has one."""
    (document,) = documents(path)
    return document


def pod() -> Any:
    """Return what a pod is made of."""
    return only("base/deployment.yaml")["spec"]["template"]["spec"]


def worker() -> Any:
    """Return the container of the worker."""
    (container,) = pod()["containers"]
    return container


def variables(container: Any) -> dict[str, str]:
    """Return a container's variables, with the values of the Secret."""
    return {
        each["name"]: each["value"]
        if "value" in each
        else SECRET[each["valueFrom"]["secretKeyRef"]["key"]]
        for each in container["env"]
    }


@pytest.fixture(params=["initContainers", "containers"])
def settings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Settings:
    """Load the settings of either container as they are in the pod."""
    (container,) = pod()[request.param]
    given = variables(container)
    assert given.pop("CTXB_CONFIG") == "/etc/ctxb/config.yml"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return load_settings(BASE / "config.yml")


# --- what it is configured with ----------------------------------------------------------------


def test_the_configuration_loads(settings: Settings) -> None:
    """Every variable and every key is a setting; addresses and token are the Secret's."""
    assert settings.bus.url is not None
    assert settings.bus.url.get_secret_value() == SECRET["bus-url"]
    assert settings.store.url.get_secret_value() == SECRET["store-url"]
    assert settings.http.token is not None
    assert settings.http.token.get_secret_value() == SECRET["http-token"]


def test_the_configuration_is_where_it_is_looked_for() -> None:
    """Its folder is mounted where the variable says, from the map that kustomize makes."""
    (generated,) = only("base/kustomization.yaml")["configMapGenerator"]
    mounts = {each["name"]: each["mountPath"] for each in worker()["volumeMounts"]}
    (volume,) = (each for each in pod()["volumes"] if "configMap" in each)

    assert generated["files"] == ["config.yml"]
    assert volume["configMap"]["name"] == generated["name"]
    assert f"{mounts[volume['name']]}/config.yml" == variables(worker())["CTXB_CONFIG"]


def test_no_secret_is_in_the_manifests() -> None:
    """What has a password comes from the Secret alone."""
    plain = {each["name"] for each in worker()["env"] if "value" in each}
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(BASE.iterdir()))

    assert plain == {"CTXB_CONFIG"}
    assert "kind: Secret" not in text
    assert not re.search(r"://[^/\s]*:[^/\s]*@", text)


def test_the_secret_is_described() -> None:
    """The page on deployment makes all of its keys, and no others."""
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")

    assert set(re.findall(r"--from-literal=([\w-]+)=", page)) >= set(SECRET)


def test_the_schema_is_upgraded_first() -> None:
    """By the same image and configuration; the command is ours."""
    (upgrade,) = pod()["initContainers"]

    assert upgrade["image"] == worker()["image"]
    assert upgrade["env"] == worker()["env"]
    assert upgrade["volumeMounts"] == worker()["volumeMounts"]
    for args in (upgrade["args"], worker()["args"]):
        assert CliRunner().invoke(app, [*args, "--help"]).exit_code == 0


# --- how it starts and ends ----------------------------------------------------------------------


def test_a_pod_has_the_time_to_finish(settings: Settings) -> None:
    """It is killed only after preStop, the worker's own time and that to close are over."""
    word, pause = worker()["lifecycle"]["preStop"]["exec"]["command"]

    assert word == "sleep"
    grace = pod()["terminationGracePeriodSeconds"]
    assert grace >= settings.worker.shutdown_timeout_seconds + float(pause) + CLOSING


def test_probes_ask_for_pages_that_there_are(settings: Settings) -> None:
    """On the port of the settings, which the pod names, and not of this machine alone."""
    ports = {each["name"]: each["containerPort"] for each in worker()["ports"]}
    probes = {kind: worker()[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")}
    pages = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}

    assert pages == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert ports == {"health": settings.health.port, "http": settings.http.port}
    assert all(probe["httpGet"]["port"] == "health" for probe in probes.values())
    assert settings.health.host == settings.http.host == "0.0.0.0"  # noqa: S104 - as it has to be
    # two checks of a second each, one after the other at worst
    assert probes["readiness"]["timeoutSeconds"] > 2


def test_an_update_leaves_no_gap() -> None:
    """A new worker is ready before an old one goes, and nodes are emptied one by one."""
    spec = only("base/deployment.yaml")["spec"]

    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["replicas"] >= 2
    assert only("base/poddisruptionbudget.yaml")["spec"]["maxUnavailable"] == 1


# --- what it may ---------------------------------------------------------------------------------


def test_a_pod_may_nothing_that_it_need_not() -> None:
    """Not root, as the image has it, without privileges, on a file system that it can't write."""
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    user, group = re.findall(r"^USER (\d+):(\d+)$", image, re.MULTILINE)[-1]
    context = pod()["securityContext"]

    assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["enableServiceLinks"] is False
    for container in (*pod()["initContainers"], *pod()["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


def test_the_worker_can_write_where_it_has_to() -> None:
    """The file that it touches lies in the one folder that it may write."""
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (heartbeat,) = re.findall(r"CTXB_WORKER__HEARTBEAT_FILE=(\S+)", image)
    writable = [
        mount["mountPath"]
        for mount in worker()["volumeMounts"]
        for volume in pod()["volumes"]
        if "emptyDir" in volume and volume["name"] == mount["name"]
    ]

    assert writable == [str(Path(heartbeat).parent)]


def test_the_network_is_closed_but_for_what_it_needs(settings: Settings) -> None:
    """Nobody without a label or a namespace comes in; bus, store and traces are let out."""
    spec = only("base/networkpolicy.yaml")["spec"]
    out = {port["port"] for rule in spec["egress"] for port in rule["ports"]}

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in spec["ingress"]] == [
        [{"protocol": "TCP", "port": "http"}],
        [{"protocol": "TCP", "port": "health"}],
    ]
    assert all(rule["from"] for rule in spec["ingress"])
    assert out == {53, 6379, 5432, 4318}


# --- who watches and scales it -------------------------------------------------------------------


def test_metrics_are_collected_under_the_name_of_the_rules(settings: Settings) -> None:
    """By annotations or by the operator; the job is the one that the alerts ask for."""
    annotations = only("base/deployment.yaml")["spec"]["template"]["metadata"]["annotations"]
    monitor = only("monitoring/podmonitor.yaml")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    (labels,) = only("base/kustomization.yaml")["labels"]
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")

    assert annotations["prometheus.io/port"] == str(settings.health.port)
    assert annotations["prometheus.io/path"] == endpoint["path"] == "/metrics"
    assert endpoint["port"] in {each["name"] for each in worker()["ports"]}
    assert monitor["selector"]["matchLabels"] == labels["pairs"]
    assert set(re.findall(r'job="([^"]*)"', rules)) == {labels["pairs"][monitor["jobLabel"]]}


def test_scaling_looks_at_the_streams_that_there_are() -> None:
    """A trigger a shard, all of them, for the group of the workers; never down to nobody."""
    scaled, who = documents("keda/scaledobject.yaml")
    triggers = scaled["spec"]["triggers"]
    streams = [each["metadata"]["stream"] for each in triggers]

    assert streams == [shard_topic(number, len(triggers)) for number in range(len(triggers))]
    assert {each["metadata"]["consumerGroup"] for each in triggers} == {REQUESTS_GROUP}
    assert {each["authenticationRef"]["name"] for each in triggers} == {who["metadata"]["name"]}
    assert (
        scaled["spec"]["scaleTargetRef"]["name"] == only("base/deployment.yaml")["metadata"]["name"]
    )
    assert scaled["spec"]["minReplicaCount"] >= 1


def test_scaling_leaves_the_database_its_connections(settings: Settings) -> None:
    """As many workers as there may be, one more in an update, fit into Postgres' default of 100."""
    scaled, _ = documents("keda/scaledobject.yaml")
    workers = scaled["spec"]["maxReplicaCount"] + 1

    assert workers * settings.store.pool_size <= 100 - 3


# --- the local stack's Prometheus ----------------------------------------------------------------


def test_prometheus_finds_the_workers_of_the_stack() -> None:
    """By the service's name and the port of its pages; the rules are where it looks for them."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    environment = compose["worker"]["environment"]

    assert job["job_name"] == "context-builder"
    assert found["names"] == ["worker"]
    assert str(found["port"]) == environment["CTXB_HEALTH__PORT"]
    assert environment["CTXB_HEALTH__HOST"] == "0.0.0.0"  # noqa: S104 - of the container
    mounted = {each.split(":")[1] for each in compose["prometheus"]["volumes"]}
    assert set(config["rule_files"]) <= mounted


def test_the_profile_is_whole() -> None:
    """Images have versions, mounts exist, ports are this machine's, nothing else starts it."""
    file = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    profile = {
        name: each
        for name, each in file["services"].items()
        if each.get("profiles") == ["observability"]
    }
    assert set(profile) == {"prometheus", "grafana", "otel-collector", "jaeger"}
    for name, each in profile.items():
        assert re.search(r":v?\d+\.\d+\.\d+$", each["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in each.get("ports", []))
        for mount in each.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).exists() if source[0] == "." else source in file["volumes"]
    for name in set(file["services"]) - set(profile):
        assert not set(file["services"][name].get("depends_on", ())) & set(profile)


def test_grafana_and_the_collector_find_the_others() -> None:
    """Every address in their files is a service of the profile."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    sources = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text("utf-8")
    )["datasources"]
    collector = yaml.safe_load((ROOT / "deploy/otel/collector.yml").read_text(encoding="utf-8"))
    addresses = [each["url"].removeprefix("http://") for each in sources]
    addresses += [each["endpoint"] for each in collector["exporters"].values()]
    (provider,) = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/dashboards/context-builder.yml").read_text("utf-8")
    )["providers"]
    (pipeline,) = collector["service"]["pipelines"].values()

    assert {address.partition(":")[0] for address in addresses} == {"prometheus", "jaeger"}
    assert (
        f"./deploy/grafana/dashboards:{provider['options']['path']}:ro"
        in (services["grafana"]["volumes"])
    )
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(collector[kind])


# --- systemd -------------------------------------------------------------------------------------


def test_the_unit_starts_and_stops_a_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its variables are settings, and it has longer than the worker's own time to finish."""
    text = (ROOT / "deploy/systemd/context-builder@.service").read_text(encoding="utf-8")
    lines = [line.partition("=") for line in text.splitlines() if "=" in line and line[0] != "#"]
    values = {key: value for key, _, value in lines}
    for key, _, value in lines:
        if key == "Environment":
            name, _, given = value.partition("=")
            monkeypatch.setenv(name, given.replace("%i", "8765"))
    monkeypatch.chdir(tmp_path)
    settings = load_settings()

    assert settings.health.port == 8765
    assert float(values["TimeoutStopSec"]) >= settings.worker.shutdown_timeout_seconds + CLOSING
    assert values["ExecStart"].split()[1:] == ["worker"]
    assert values["SuccessExitStatus"] == "143"
    assert values["RestartPreventExitStatus"].split() == ["2", "3"]
