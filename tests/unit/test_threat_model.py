"""The threat model leads to tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")


def test_what_shows_it_is_there() -> None:
    """Every threat names a test or a benchmark, and all of them exist."""
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [^|]+ \| [^|]+ \| [^|]+ \|$", line)]
    threats = [row for row in rows if not row.startswith(("| Threat", "| --- "))]
    missing = [row for row in threats if not re.search(r"`(?:tests|bench)/[\w/.]+`", row)]
    places = set(re.findall(r"`((?:tests|bench)/[\w/.]+)`", PAGE))

    assert len(threats) > 30
    assert missing == []
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


def test_every_border_leaves_something_to_the_operator() -> None:
    """The numbers of the drawing are the sections, and each says what is not done."""
    drawn = set(re.findall(r"\((\d+)\)", PAGE.split("```")[1]))
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    borders = {each.split(" · ")[0]: each for each in sections if " · " in each}

    assert drawn == set(borders)
    assert [number for number, text in borders.items() if "Left to you: " not in text] == []
