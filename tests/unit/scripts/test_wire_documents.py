"""What is generated is under version control, as it would be generated now."""

from pathlib import Path

from scripts.wire_documents import documents, write

ROOT = Path(__file__).parents[3]


def test_the_published_documents_are_those_of_the_code(tmp_path: Path) -> None:
    """`make reference` would change nothing in docs."""
    write(tmp_path)
    for name, text in documents().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run make reference"
        assert (tmp_path / name).read_text(encoding="utf-8") == text


def test_nothing_else_lies_among_the_schemas() -> None:
    """A schema that is no longer generated is deleted."""
    lying = {f"schemas/{path.name}" for path in (ROOT / "docs" / "schemas").iterdir()}
    assert lying == set(documents())
