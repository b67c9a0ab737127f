"""The file of the widget, and the page about it, without a browser."""

import re
from pathlib import Path

import pytest

from service.http.static_files import FOLDER

SCRIPT = (FOLDER / "context-manager-widget.js").read_text(encoding="utf-8")
PAGE = (Path(__file__).parents[4] / "docs" / "inspector.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """Return what is below a heading of the page."""
    return PAGE.split(f"\n### {heading}\n")[1].split("\n### ")[0]


def test_it_is_one_file() -> None:
    """It loads no other, so that one script tag is enough."""
    assert not re.search(r"^\s*import |import\(|@import|url\(", SCRIPT, re.MULTILINE)


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_nothing_is_read_as_html_or_as_a_program(word: str) -> None:
    """Texts stay texts."""
    assert word not in SCRIPT


def test_every_attribute_has_a_line() -> None:
    """In the table, and none has that isn't there."""
    (listed,) = re.findall(r"observedAttributes = \[(.*?)\]", SCRIPT)
    reported = re.findall(r"^\| `(\w+)` \|", section("Attributes"), re.MULTILINE)
    properties = {"status", "hasToken"}
    assert set(reported) - properties == set(re.findall(r'"(\w+)"', listed))


def test_every_event_has_a_line() -> None:
    """Under its whole name."""
    sent = set(re.findall(r'#emit\("(\w+)"', SCRIPT))
    assert set(re.findall(r"`context-manager:(\w+)`", section("Events"))) == sent


def test_every_custom_property_is_reported() -> None:
    """And each documented one is read."""
    reported = set(re.findall(r"`(--cmw-[a-z-]+)`", section("Looks")))
    assert reported == set(re.findall(r"--cmw-[a-z-]+", SCRIPT))
