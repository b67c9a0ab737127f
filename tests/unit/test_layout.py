"""The house rules that no linter knows."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for package in ("service", "formatters", "prompts")
    for path in sorted((ROOT / package).rglob("*.py"))
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_at_most_300_lines(path: Path) -> None:
    """What is longer holds more than one thing."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
