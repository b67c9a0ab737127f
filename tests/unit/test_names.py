"""The table of names leads to what it says."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "names.md").read_text(encoding="utf-8")
PLACES = sorted(set(re.findall(r"`((?:service|prompts|formatters)(?:\.\w+)+\.\w+)`", PAGE)))


def test_all_places_are_tried() -> None:
    """The page has a place for most of its names."""
    assert len(PLACES) > 60


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_there(place: str) -> None:
    """What stands in place of a source system's name can be imported from there."""
    module, name = place.rsplit(".", 1)
    assert hasattr(import_module(module), name)
