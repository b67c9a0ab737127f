import pytest

from formatters.extractive import Sentence, rank_sentences, stem_words
from formatters.model import Role


def sentence(text: str, role: Role = Role.HUMAN) -> Sentence:
    """Return a sentence that may be chosen."""
    return Sentence(text=text, message=0, role=role, words=tuple(dict.fromkeys(stem_words(text))))


def best(*texts: str) -> str:
    """Return the text that is ranked first."""
    return texts[rank_sentences([sentence(text) for text in texts], 10_000)[0]]


@pytest.mark.parametrize(
    ("plain", "telling"),
    [
        ("we meet for dinner at ten", "we meet for dinner at 10."),
        ("we meet at the low bridge", "we meet at the Old bridge"),
        ("is the lamp of the hall out?", "so the lamp of the hall is out"),
        ("it stopped with some output", "it stopped with an error now"),
    ],
)
def test_numbers_names_statements_and_turns_go_first(plain: str, telling: str) -> None:
    """Of two sentences that are alike, the one that tells more is worth more."""
    assert best(plain, telling) == telling
    assert best(telling, plain) == telling


def test_results_of_tools_are_worth_less() -> None:
    """Than the same words of a person."""
    said = [sentence("red kettle", Role.TOOL), sentence("kettle red", Role.HUMAN)]
    assert rank_sentences(said, 10_000) == [1, 0]


def test_what_was_said_is_worth_less() -> None:
    """A sentence of new words goes before a longer one that says the same again."""
    said = ["the red kettle leaks badly", "the red kettle leaks very badly", "a plum fell"]
    order = rank_sentences([sentence(text) for text in said], 10_000)
    assert order.index(2) < max(order.index(0), order.index(1))


def test_the_newest_of_the_same_stands_for_all() -> None:
    """Sentences with the same words are chosen once, those without words never."""
    said = [sentence("Hello there"), sentence("hello THERE!"), sentence("…")]
    assert rank_sentences(said, 10_000) == [1]


def test_no_more_is_ranked_than_asked_for() -> None:
    """The ranking stops at so many bytes."""
    said = [sentence(f"number {place}") for place in range(50)]
    assert len(rank_sentences(said, 30)) == 4
    assert rank_sentences(said, 0) == []
