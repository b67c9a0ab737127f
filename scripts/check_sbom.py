"""Check that a list of parts is that of a release: whole, in the pinned versions, nothing else.

    python -m scripts.check_sbom dist/sbom.json otel,postgres

The list is one of CycloneDX in JSON; behind it stand the extras that the release was made with.
``make sbom`` runs this behind what makes the list.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def faults(
    bom: Mapping[str, Any], project: Mapping[str, Any], extras: Iterable[str], pins: str
) -> Iterator[str]:
    """Say what is wrong with a list of parts, given the project's table and ``constraints.txt``."""
    optional: Mapping[str, list[str]] = project["optional-dependencies"]
    needed = {*names(project["dependencies"])}.union(*(names(optional[each]) for each in extras))
    left_out = set[str]().union(*(names(each) for each in optional.values())) - needed
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins, re.MULTILINE))
    versions = {normal(name): version for name, version in pinned.items()}
    parts = {normal(each["name"]): each["version"] for each in bom["components"]}
    root = bom["metadata"]["component"]
    if (root["name"], root["version"]) != (project["name"], project["version"]):
        yield f"it is of {root['name']} {root['version']}"
    for name in sorted(needed - parts.keys()):
        yield f"{name} is missing"
    for name in sorted(left_out & parts.keys()):
        yield f"{name} is no part of a release"
    for name, version in sorted(parts.items()):
        if versions.get(name) != version:
            yield f"{name} {version} is not pinned: constraints.txt has {versions.get(name)}"


def names(requirements: Iterable[str]) -> Iterator[str]:
    """Return what is required, without versions, extras and conditions."""
    for requirement in requirements:
        yield normal(re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0])


def normal(name: str) -> str:
    """Return a name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Check the list that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", type=Path)
    parser.add_argument("extras", help="names with commas between them")
    chosen = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bom = json.loads(chosen.list.read_text(encoding="utf-8"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = list(faults(bom, project, chosen.extras.split(","), pins))
    for each in found:
        sys.stderr.write(f"{chosen.list}: {each}\n")
    sys.stdout.write(f"{len(bom['components'])} parts, {len(found)} faults\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
