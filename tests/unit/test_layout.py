"""The house rules that no linter knows."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_module_has_at_most_300_lines() -> None:
    """What is longer holds more than one thing."""
    modules = [
        path
        for package in ("service", "formatters", "prompts")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules
    }

    assert len(lengths) > 100
    assert {path: lines for path, lines in lengths.items() if lines > 300} == {}
