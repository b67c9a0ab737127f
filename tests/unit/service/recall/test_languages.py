import pytest

from service.recall.languages import STOP_WORDS, language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("what did we say about the boat that is in the lake", "english"),
        ("was haben wir über das boot gesagt das auf dem see ist", "german"),
        ("qu est ce que nous avons dit sur le bateau qui est dans le lac", "french"),
        ("qué hemos dicho sobre el barco que está en el lago", "spanish"),
        ("что мы сказали о лодке которая была на озере", "russian"),
        ("boat lake quiet", "english"),
        ("", "english"),
    ],
)
def test_small_words_tell_the_language(text: str, language: str) -> None:
    """The language with most of its stop words is taken, English where none has enough."""
    assert language_of(text.split()) == language


def test_each_language_can_be_stemmed() -> None:
    """There are stop words for each, and what apostrophes leave is among them."""
    assert {"english", "german", "french", "spanish", "russian", "arabic"} <= STOP_WORDS.keys()
    assert all("s" in stops for stops in STOP_WORDS.values())
    assert "the" in STOP_WORDS["english"]
    assert not STOP_WORDS["english"] & {"home", "work", "new"}
