import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.recall.terms import (
    DEFAULT,
    LEAST_SHARE,
    STOP_WORDS,
    detect_language,
    detect_language_of,
    plain_words,
)


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
def test_small_words_show_the_language(text: str, language: str) -> None:
    """The language with most of its stop words is taken, English where none has enough."""
    assert detect_language(text.split()) == language


def test_languages_share_words() -> None:
    """Of two with the same number, English is taken, or else the first by its name."""
    names = sorted(STOP_WORDS)
    shared = {word: [each for each in names if word in STOP_WORDS[each]] for word in ("en", "in")}
    assert len(shared["en"]) > 1 < len(shared["in"])

    assert "english" not in shared["en"]
    assert detect_language(["en"]) == shared["en"][0]
    assert detect_language(["in"]) == "english"


@given(st.lists(st.sampled_from(sorted(frozenset[str]().union(*STOP_WORDS.values())))))
def test_the_largest_share_is_found(said: list[str]) -> None:
    """No other language has more of the words; too small a one counts for nothing."""
    hits = {name: sum(word in stops for word in said) for name, stops in STOP_WORDS.items()}
    most = max(hits.values())

    found = detect_language(said)

    if most < LEAST_SHARE * len(said):
        assert found == DEFAULT
    else:
        assert hits[found] == most


def test_each_language_can_be_stemmed() -> None:
    """There are stop words for each, and what apostrophes leave is among them."""
    assert {"english", "german", "french", "spanish", "russian", "arabic"} <= STOP_WORDS.keys()
    assert all("s" in stops for stops in STOP_WORDS.values())
    assert "the" in STOP_WORDS["english"]
    assert not STOP_WORDS["english"] & {"home", "work", "new"}


_STOPS = st.sampled_from(sorted(frozenset[str]().union(*STOP_WORDS.values())))


@given(st.lists(st.lists(_STOPS | st.text(max_size=5)).map(" ".join)))
def test_texts_are_counted_as_one(texts: list[str]) -> None:
    """What each text was counted as before adds up, whatever characters it begins with."""
    assert detect_language_of(tuple(texts)) == detect_language(plain_words(" ".join(texts)))
