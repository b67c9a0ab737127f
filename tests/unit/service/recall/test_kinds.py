"""Words name kinds of other words."""

import pytest

from service.recall.kinds import MAX_KINDS, find_kinds


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("instrument", "thermomet"),
        ("instruments", "thermomet"),
        ("cities", "aberdeen"),
        ("children", "toddler"),
        ("games", "curl"),
        ("buses", "trolleybus"),
        ("berries", "cranberri"),
        ("wolves", "coyot"),
        ("clothes", "denim"),
    ],
)
def test_a_word_has_the_stems_of_its_kinds(word: str, kind: str) -> None:
    """Plurals, regular ones and others, have those of their singulars."""
    assert kind in find_kinds([word])


def test_synonyms_count_as_kinds() -> None:
    """They are words of the same meaning."""
    assert "avoc" in find_kinds(["hobby"])


@pytest.mark.parametrize("word", ["activity", "entity", "xyzzy", ""])
def test_a_word_that_says_nothing_has_no_kinds(word: str) -> None:
    """It is unknown, or has too many of them."""
    assert not find_kinds([word])


def test_several_words_have_the_kinds_of_all() -> None:
    """So a question may name several."""
    assert find_kinds(["book", "fish"]) == find_kinds(["book"]) | find_kinds(["fish"])
    assert 0 < len(find_kinds(["city"])) <= MAX_KINDS
