"""The manifests of Kubernetes and the unit of systemd say what the worker needs."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from service.adapters.redis.shards import shard_topic
from service.cli.root import app
from service.config.endpoints import HttpSettings
from service.config.load import load_settings
from service.config.settings import Settings
from service.wire.protocol import REQUESTS_GROUP

ROOT = Path(__file__).parents[3]
BASE = ROOT / "deploy/kubernetes/base"
#: Seconds that a worker takes to close what it has open where the bus hangs: two looks at it with
#: `bus.socket_timeout_seconds` each, and what the pages, backlogs and spans are given.
CLOSING = 15.0
#: The content of the Secret, as docs/deployment.md has it made.
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


def test_pods_build_what_the_local_stack_builds(settings: Settings) -> None:
    """The preset and the system message are those of the compose file."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    given = compose["services"]["worker"]["environment"]
    names = ("CTXB_PRESET", "CTXB_PROMPTS__IDENTITY", "CTXB_PROMPTS__CAPABILITIES")
    chosen = (settings.preset, settings.prompts.identity, settings.prompts.capabilities)

    assert [given[name] for name in names] == [
        f"${{{name}:-{value}}}" for name, value in zip(names, chosen, strict=True)
    ]


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


def test_the_memory_suffices_for_the_largest_requests(settings: Settings) -> None:
    """As docs/operations.md has it; `bench.memory_peak` measures it."""
    waiting = 3 * settings.worker.concurrency * settings.bus.max_payload_bytes
    needed = 260 + (waiting + 104 * settings.worker.max_inflight_bytes) / 1_048_576
    unit = (ROOT / "deploy/systemd/context-builder@.service").read_text(encoding="utf-8")
    assert int(worker()["resources"]["limits"]["memory"].removesuffix("Mi")) >= needed
    assert int(re.findall(r"MemoryMax=(\d+)M", unit)[0]) >= needed


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


def test_names_are_resolved_by_the_cluster_or_on_the_node() -> None:
    """DNS goes to kube-system and to link-local caches, which get nothing but DNS."""
    rules = only("base/networkpolicy.yaml")["spec"]["egress"]
    (dns,) = (rule for rule in rules if {"protocol": "UDP", "port": 53} in rule["ports"])
    blocks = [ip_network(each["ipBlock"]["cidr"]) for each in dns["to"] if "ipBlock" in each]
    spaces = [each["namespaceSelector"] for each in dns["to"] if "namespaceSelector" in each]

    assert dns["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    assert [block.is_link_local for block in blocks] == [True]
    assert ip_address("169.254.20.10") in blocks[0]
    assert spaces == [{"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}]


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
    """By unread and pending entries of each shard, in the workers' group; never down to nobody."""
    scaled, who = documents("keda/scaledobject.yaml")
    triggers = scaled["spec"]["triggers"]

    for count in ("lagCount", "pendingEntriesCount"):
        streams = [e["metadata"]["stream"] for e in triggers if count in e["metadata"]]
        assert streams == [shard_topic(number, len(streams)) for number in range(len(streams))]
    assert {each["metadata"]["consumerGroup"] for each in triggers} == {REQUESTS_GROUP}
    assert {each["authenticationRef"]["name"] for each in triggers} == {who["metadata"]["name"]}
    assert (
        scaled["spec"]["scaleTargetRef"]["name"] == only("base/deployment.yaml")["metadata"]["name"]
    )
    assert scaled["spec"]["minReplicaCount"] >= 1


def test_scaling_counts_what_is_in_work_apart(settings: Settings) -> None:
    """Pending requests are those that wait, and those in a worker's slots."""
    scaled, _ = documents("keda/scaledobject.yaml")
    counts = {
        name: int(value)
        for trigger in scaled["spec"]["triggers"]
        for name, value in trigger["metadata"].items()
        if name in ("lagCount", "pendingEntriesCount")
    }

    assert counts["pendingEntriesCount"] == counts["lagCount"] + settings.worker.concurrency


def test_scaling_leaves_the_database_its_connections(settings: Settings) -> None:
    """The largest number of workers, plus one in an update, fits into Postgres' default of 100."""
    scaled, _ = documents("keda/scaledobject.yaml")
    workers = scaled["spec"]["maxReplicaCount"] + 1

    assert workers * settings.store.pool_size <= 100 - 3


# --- what it is made of --------------------------------------------------------------------------


def images() -> Iterator[tuple[str, str]]:
    """Yield every image that is named, with its place: a base, one of compose, one of a pod."""
    for name in re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text("utf-8"), re.M):
        yield "Dockerfile", name
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    for service, each in compose["services"].items():
        yield f"docker-compose.yml: {service}", each["image"]
    tags = {each["name"]: each for each in only("base/kustomization.yaml")["images"]}
    for container in (*pod()["initContainers"], *pod()["containers"]):
        made = tags[container["image"]]
        yield container["name"], f"{made['newName']}:{made['newTag']}"


@pytest.mark.parametrize(("place", "image"), list(images()))
def test_an_image_is_of_one_version(place: str, image: str) -> None:
    """By digest, or by a tag with a minor version; `latest` and no tag at all are neither."""
    assert re.search(r"@sha256:[0-9a-f]{64}$|:v?\d+\.\d+(\.\d+)?(-[\w.-]+)?$", image), place


def test_our_own_image_is_of_this_version() -> None:
    """What compose builds and what the manifests ask for is the version of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {image for _, image in images() if image.startswith("context-builder")}

    assert ours == {f"context-builder:{project['version']}"}


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


def test_the_stack_serves_the_inspector_to_this_machine_alone() -> None:
    """On a loopback port, under the names of this machine, with a token."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    prefix = "CTXB_HTTP__"
    given = {
        name.removeprefix(prefix).lower(): re.sub(r"\$\{\w+:-(.*)\}", r"\1", value)
        for name, value in compose["worker"]["environment"].items()
        if name.startswith(prefix)
    }
    hosts = json.loads(given.pop("allowed_hosts"))
    settings = HttpSettings.model_validate({**given, "allowed_hosts": hosts})

    assert compose["worker"]["ports"] == ["127.0.0.1:${HTTP_PORT:-8766}:8766"]
    assert (settings.port, settings.content) == (8766, "redacted")
    assert set(settings.allowed_hosts) == {"127.0.0.1", "localhost"}
    assert settings.token is not None


def test_the_profile_is_whole() -> None:
    """Mounts exist, ports are this machine's, nothing else starts it."""
    file = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    profile = {
        name: each
        for name, each in file["services"].items()
        if each.get("profiles") == ["observability"]
    }
    assert set(profile) == {"prometheus", "grafana", "otel-collector", "jaeger"}
    for each in profile.values():
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


def test_a_shell_reads_addresses_of_tls_from_the_file_of_the_unit(tmp_path: Path) -> None:
    """The page's lines are quoted, so that a shell takes all parameters of an address."""
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    tls = "?sslmode=verify-full&sslrootcert=/etc/ctxb/ca.pem"
    (tmp_path / "worker.env").write_text(lines.replace("/ctxb'", f"/ctxb{tls}'"), encoding="utf-8")
    read = 'set -a && . ./worker.env && printf "%s" "$CTXB_STORE__URL"'
    shell = ["/bin/sh", "-c", read]
    address = subprocess.check_output(shell, cwd=tmp_path, text=True)  # noqa: S603  (lines above)

    assert address.endswith(f"@127.0.0.1:5432/ctxb{tls}")
