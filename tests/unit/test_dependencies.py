"""Every dependency is accounted for, and comes with a licence that is what we say."""

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest

from scripts.check_sbom import normalize, package_names

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
ROOMS = ("ctxb", "service", "formatters", "prompts")
KNOWN = {*ROOMS, *sys.stdlib_module_names}
#: Licences that no part of a release may have.
FAR_REACHING = ("GPL", "SSPL", "BUSL", "Commons-Clause")


def rows() -> dict[str, tuple[str, str, str, str]]:
    """Return extra, use, reason and licence of each package of the page."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    page = text.split("\n## Dependencies\n")[1].split("\n## ")[0]
    found: dict[str, tuple[str, str, str, str]] = {}
    for line in re.findall(r"^\| (`.*) \|$", page, re.MULTILINE):
        packages, extra, use, reason, licence = (each.strip() for each in line.split(" |"))
        for name in re.findall(r"`([^`]+)`", packages):
            found[normalize(name)] = (extra, use, reason, licence)
    return found


def test_every_dependency_has_a_row() -> None:
    """In its extra, with what it is for, and a reason where it is in a release; no others."""
    asked: dict[str, str] = {}
    for extra, packages in EXTRAS.items():
        for name in package_names(packages):
            asked.setdefault(name, extra)

    assert {name: extra for name, (extra, *_) in rows().items()} == asked
    for name, (extra, use, reason, _) in rows().items():
        assert use, name
        assert reason or extra == "dev", name


def test_what_is_imported_is_declared() -> None:
    """Not only what another package brings along, which may stop to."""
    declared = {name for name, (extra, *_) in rows().items() if extra != "dev"}
    providers = packages_distributions()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - KNOWN:
                assert declared & set(map(normalize, providers.get(top, [top]))), f"{path}: {top}"


def test_every_dependency_is_pinned() -> None:
    """Image, tests and CI install the versions of one file."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = set(package_names(re.findall(r"^([\w.-]+)==", text, re.MULTILINE)))

    assert rows().keys() - pinned == set()


@pytest.mark.parametrize("name", sorted(rows()))
def test_a_licence_is_what_the_page_says(name: str) -> None:
    """As the installed package declares it; what a release holds binds nobody who uses it."""
    extra, *_, licence = rows()[name]
    if extra not in ("dev", "docs", "release"):
        assert not any(word in licence for word in FAR_REACHING)
    try:
        metadata: Any = distribution(name).metadata
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed, of the extra {extra!r}")
    declared = metadata.get("License-Expression")
    if declared is not None:
        assert licence == declared
        return
    classifiers = [each for each in metadata.get_all("Classifier") or () if "License" in each]
    reported = " ".join([metadata.get("License") or "", *classifiers]).strip()
    if not reported:
        pytest.skip(f"{name} declares none where programs look")
    assert all(word in reported for word in re.findall(r"MIT|BSD|Apache|MPL|GPL", licence))
