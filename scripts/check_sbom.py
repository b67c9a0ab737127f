"""Check that the SBOM of a release lists its packages in their pinned versions, and no others.

    python -m scripts.check_sbom dist/sbom.json otel,postgres

The arguments are a CycloneDX SBOM in JSON and the extras of the release. ``make sbom`` runs this
after it has written the SBOM.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def find_problems(
    bom: Mapping[str, Any], project: Mapping[str, Any], extras: Iterable[str], pins: str
) -> Iterator[str]:
    """Yield the problems of an SBOM, given the project's table and ``constraints.txt``."""
    optional: Mapping[str, list[str]] = project["optional-dependencies"]
    required = [*project["dependencies"], *(r for extra in extras for r in optional[extra])]
    needed = set(package_names(required))
    root = bom["metadata"]["component"]
    edges = (edge for edge in bom["dependencies"] if edge["ref"] != root["bom-ref"])
    # of another extra, and also what a package of the release requires
    shared = set(package_names(chain.from_iterable(edge.get("dependsOn", ()) for edge in edges)))
    excluded = set(package_names(chain.from_iterable(optional.values()))) - needed - shared
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins, re.MULTILINE))
    versions = {normalize(name): version for name, version in pinned.items()}
    parts = {normalize(part["name"]): part["version"] for part in bom["components"]}
    if (root["name"], root["version"]) != (project["name"], project["version"]):
        yield f"describes {root['name']} {root['version']}"
    for name in sorted(needed - parts.keys()):
        yield f"{name} is missing"
    for name in sorted(excluded & parts.keys()):
        yield f"{name} is not part of the release"
    for name, version in sorted(parts.items()):
        if versions.get(name) != version:
            yield f"{name} {version} is not pinned: constraints.txt has {versions.get(name)}"


def package_names(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the names of required packages, without versions, extras and conditions."""
    for requirement in requirements:
        yield normalize(re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0])


def normalize(name: str) -> str:
    """Return a package name in the form in which registries compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Check the SBOM given on the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("list", type=Path)
    parser.add_argument("extras", help="names, separated by commas")
    chosen = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bom = json.loads(chosen.list.read_text(encoding="utf-8"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    problems = list(find_problems(bom, project, chosen.extras.split(","), pins))
    for problem in problems:
        sys.stderr.write(f"{chosen.list}: {problem}\n")
    sys.stdout.write(f"{len(bom['components'])} packages, {len(problems)} problems\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
