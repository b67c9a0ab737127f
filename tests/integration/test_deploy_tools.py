"""What the tools themselves make of the files in `deploy`: kubectl, promtool, a shell."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import lacking

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")


def ran(program: str, *arguments: str | Path) -> str:
    """Run a tool and return what it says; it has to succeed."""
    found = shutil.which(program)
    assert found is not None
    done = subprocess.run(  # noqa: S603 - tools of this machine on files of ours
        [found, *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(folder: Path) -> dict[str, list[Any]]:
    """Return what kustomize makes of a folder, by kind."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on this machine, and Debian has no package of it")
    documents: dict[str, list[Any]] = {}
    for document in yaml.safe_load_all(ran("kubectl", "kustomize", folder)):
        documents.setdefault(document["kind"], []).append(document)
    return documents


def test_kustomize_builds_the_base() -> None:
    """Everything refers to everything else by the names that kustomize gives."""
    made = built(KUBERNETES / "base")
    (deployment,) = made["Deployment"]
    (configuration,) = made["ConfigMap"]
    template = deployment["spec"]["template"]
    (volume,) = (each for each in template["spec"]["volumes"] if "configMap" in each)
    labels = template["metadata"]["labels"].items()

    assert volume["configMap"]["name"] == configuration["metadata"]["name"] != "context-builder"
    assert configuration["data"]["config.yml"] == (KUBERNETES / "base/config.yml").read_text(
        "utf-8"
    )
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    policy = made["NetworkPolicy"][0]["spec"]
    budget = made["PodDisruptionBudget"][0]["spec"]
    for selector in (
        made["Service"][0]["spec"]["selector"],
        budget["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selector
        assert selector.items() <= labels
    callers, _ = policy["ingress"]
    assert callers["from"] == [{"podSelector": {"matchLabels": {"context-builder/client": "true"}}}]
    images = {
        each["image"]
        for kind in ("containers", "initContainers")
        for each in template["spec"][kind]
    }
    assert len(images) == 1


def test_the_page_s_own_folder_builds(tmp_path: Path) -> None:
    """As the page has it: another namespace, and an image of somebody's registry."""
    (text,) = (
        block
        for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        if "namespace:" in block
    )
    base = os.path.relpath(KUBERNETES / "base", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        text.replace("../deploy/kubernetes/base", base), encoding="utf-8"
    )
    (deployment,) = built(tmp_path)["Deployment"]

    assert deployment["metadata"]["namespace"] == "contexts"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.com/context-builder:")


def test_the_page_s_patch_separates_roles_and_mounts_the_authority(tmp_path: Path) -> None:
    """The init container alone has the other URL; both containers read the certificates."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (patches,) = (block for block in blocks if block.startswith("patches:"))
    base = os.path.relpath(KUBERNETES / "base", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}]\n{patches}", "utf-8")
    spec = built(tmp_path)["Deployment"][0]["spec"]["template"]["spec"]
    containers = {"init": spec["initContainers"][0], "worker": spec["containers"][0]}
    keys = {
        name: [
            each["valueFrom"]["secretKeyRef"]["key"] for each in found["env"] if "valueFrom" in each
        ]
        for name, found in containers.items()
    }

    assert keys["init"] == ["bus-url", "owner-url", "http-token"]
    assert keys["worker"] == ["bus-url", "store-url", "http-token"]
    for found in containers.values():
        assert {"name": "ca", "mountPath": "/etc/ca"} in found["volumeMounts"]
    assert {"name": "ca", "configMap": {"name": "ca"}} in spec["volumes"]


@pytest.mark.parametrize("folder", ["monitoring", "keda"])
def test_kustomize_builds_what_operators_need(folder: str) -> None:
    """Each is whole by itself, since not every cluster has the operator."""
    assert built(KUBERNETES / folder)


def test_the_page_s_wrapped_rules_are_the_rules() -> None:
    """What the page makes for the operator holds the groups of the file, unchanged."""
    (pipe,) = re.findall(r"\$ (\{ printf .*?\}) \| kubectl", PAGE, re.DOTALL)
    wrapped = subprocess.run(  # noqa: S603 - the page's own line
        ["/bin/sh", "-c", pipe], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    made = yaml.safe_load(wrapped)

    assert made["kind"] == "PrometheusRule"
    assert made["spec"] == yaml.safe_load(rules)


def test_the_page_s_command_makes_runbooks_links(tmp_path: Path) -> None:
    """Each `runbook_url` becomes the address of a section, and nothing else changes."""
    folder = tmp_path / "deploy/prometheus"
    shutil.copytree(ROOT / "deploy/prometheus", folder)
    (command,) = re.findall(r"^\$ (sed --in-place (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    subprocess.run(["/bin/sh", "-c", command], check=True, cwd=tmp_path)  # noqa: S603 - the page's

    for name in ("rules.yml", "rules_test.yml"):
        shipped = (ROOT / "deploy/prometheus" / name).read_text(encoding="utf-8")
        changed = (folder / name).read_text(encoding="utf-8")
        assert "https://" in changed
        assert "runbook_url: docs" not in changed
        assert (
            changed.replace("https://docs.example.com/metrics.html", "docs/metrics.md") == shipped
        )


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("test", "rules"), "rules_test.yml"),
        (("check", "rules"), "rules.yml"),
        (("check", "config", "--syntax-only"), "prometheus.yml"),
    ],
)
def test_prometheus_takes_them(command: tuple[str, ...], file: str) -> None:
    """Configuration and rules are valid, and each alert fires only when it has to."""
    if shutil.which("promtool") is None:
        lacking("no promtool on this machine: it is part of the package prometheus")
    ran("promtool", *command, ROOT / "deploy/prometheus" / file)


def test_every_alert_has_series_under_which_it_fires() -> None:
    """The file of series names all of them."""
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    series = (ROOT / "deploy/prometheus/rules_test.yml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"- alert: (\w+)", rules))

    assert alerts
    assert set(re.findall(r"ContextBuilder\w+", series)) == alerts
