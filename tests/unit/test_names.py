"""The page on porting leads to what it says."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "porting.md").read_text(encoding="utf-8")
SAME = re.findall(r"^Same name in `ctxb`: (.*)$", PAGE, re.MULTILINE)
PLACES = sorted(
    {*re.findall(r"`(ctxb(?:\.\w+)+)`", PAGE)}
    | {f"ctxb.{name}" for line in SAME for name in re.findall(r"`(\w+)`", line)}
)


def test_all_places_are_tried() -> None:
    """The page has a place for most of its names."""
    assert len(SAME) == 5
    assert len(PLACES) > 70


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_there(place: str) -> None:
    """The replacement of each source system's name is public."""
    module, name = place.rsplit(".", 1)
    assert name in import_module(module).__all__
