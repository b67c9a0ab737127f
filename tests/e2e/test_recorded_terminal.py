"""The picture of a terminal in the README is of what its commands print."""

import re
from html import unescape
from pathlib import Path

import pytest

from scripts.record_terminal import COMMANDS, record

pytestmark = pytest.mark.e2e

PICTURE = Path(__file__).parents[2] / "docs/images/terminal.svg"


@pytest.fixture(scope="module")
def recorded() -> str:
    """Return a picture made now."""
    return record()


def lines(svg: str) -> list[str]:
    """Return what a picture shows, from top to bottom."""
    shown: dict[str, str] = {}
    for height, text in re.findall(r'<text [^>]*y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        shown[height] = shown.get(height, "") + unescape(text).replace("\xa0", " ")
    return [line.rstrip() for line in shown.values()]


def test_the_picture_shows_what_the_commands_print(recorded: str) -> None:
    """If this fails, `make pictures` takes a new one."""
    assert lines(PICTURE.read_text(encoding="utf-8")) == lines(recorded)


def test_the_picture_shows_a_message_left_out_and_why(recorded: str) -> None:
    """The commands are there, and a decision with its reason."""
    text = "\n".join(lines(recorded))

    assert all(f"$ {command}" in text for command in COMMANDS)
    assert re.search(r"dropped .* others score higher", text)


def test_the_picture_asks_no_other_host() -> None:
    """No font, style sheet or picture is fetched."""
    assert not re.search(r"url\((?!#)|href=|@import", PICTURE.read_text(encoding="utf-8"))
