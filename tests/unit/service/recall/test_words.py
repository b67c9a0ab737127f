import pytest

from service.recall.question import is_hiragana
from service.recall.terms import CACHED_CHARS, MAX_NAMES, MAX_TEXT_CHARS, analyze, cjk_chars, words


def test_words_are_lower_case_and_without_marks() -> None:
    """Apostrophes, dashes and underscores end a word."""
    assert words("It's Anna-Lena's snake_case, 3rd!") == [
        *("it", "s", "anna", "lena", "s", "snake", "case", "3rd")
    ]


def test_wide_letters_are_the_plain_ones() -> None:
    """Full-width text finds what was written in ASCII."""
    assert words("ＡＢＣ１") == ["abc1"]


def test_vowel_signs_are_parts_of_words_and_points_are_not() -> None:
    """Those of Indic scripts are written by all, those of Arabic and Hebrew by few."""
    assert words("डॉक्टर से मिला") == ["डॉक्टर", "से", "मिला"]
    assert words("মা") == ["মা"]
    assert words("مَوْعِد") == words("موعد") == ["موعد"]
    assert words("שָׁלוֹם") == words("שלום") == ["שלום"]


def test_thai_is_taken_in_runs_of_three() -> None:
    """It has no blanks between words, and its signs belong to the letters before them."""
    grams = analyze("ที่ร้านกาแฟ", "english").stems
    assert {"กาแ", "าแฟ"} <= grams.keys()
    assert "ที่ร้านกาแฟ" not in grams


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("北京的天气", ["北京", "京的", "的天", "天气", *"北京的天气"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", *"東京"]),
        ("사과나무", ["사과", "과나", "나무"]),
        ("雨", ["雨"]),
    ],
)
def test_scripts_without_blanks_are_taken_in_pairs(text: str, pairs: list[str]) -> None:
    """Chinese, Japanese and Korean have pairs of characters, and Han characters alone too."""
    found = analyze(text, "english")

    assert list(found.stems) == pairs
    assert list(found.grams) == pairs


def test_other_words_between_them_stay_whole() -> None:
    """A name in Latin letters within Chinese is a word of its own."""
    assert list(analyze("我用python写", "english").stems) == ["python", "我用", "写", "我", "用"]


def test_stems_and_runs_are_counted() -> None:
    """Forms of a word share a stem; stop words count nothing; short words are a run whole."""
    found = analyze("Running, she runs: it ran to Oz", "english")

    assert found.stems["run"] == 3
    assert "she" not in found.stems
    assert found.grams["_run"] == 2
    assert "_oz_" in found.grams
    assert (found.stem_count, found.gram_count) == (
        sum(found.stems.values()),
        sum(found.grams.values()),
    )


def test_small_words_of_scripts_without_blanks_count_nothing() -> None:
    """Pairs within stop words are left out, and Hiragana alone is distinguished."""
    assert list(analyze("天気です", "english").stems) == ["天気", "気で", "天", "気"]
    assert is_hiragana("です")
    assert not any(map(is_hiragana, ("カメ", "天で", "de", "")))


def test_names_within_a_sentence_are_counted() -> None:
    """A capital at the start of a sentence makes no name, and one said twice is one."""
    assert analyze("We met Ann in Paris. Then Ann left", "english").names == 2 / MAX_NAMES
    assert analyze("Ann: Hello. What?", "english").names == 0
    assert analyze("We met Ann, Ben, Cid and Dee", "english").names == 1


def test_a_long_text_is_looked_at_in_part() -> None:
    """Of a text without end only its first characters are searched."""
    text = "boat " * MAX_TEXT_CHARS

    assert analyze(text, "english").stems == {"boat": MAX_TEXT_CHARS // len("boat ")}


def test_nothing_is_found_in_nothing() -> None:
    """A text without words has no terms."""
    assert analyze("?! 👍", "english")[:5] == ({}, {}, 0, 0, 0)


def test_characters_without_blanks_are_counted() -> None:
    """Letters, blanks and full-width marks are none of them."""
    assert cjk_chars("用python写, 사과") == 4
    assert cjk_chars("plain") == 0


def test_a_text_is_analysed_once() -> None:
    """Its analysis is cached; one in another language is another one."""
    first = analyze("analysed once", "english")

    assert analyze("analysed once", "english") is first
    assert analyze("analysed once", "german") is not first


def test_the_characters_of_cached_texts_are_limited() -> None:
    """What was used last stays, and what was used longest ago is discarded."""
    texts = [f"{n:010}{'?' * (MAX_TEXT_CHARS - 10)}" for n in range(CACHED_CHARS // MAX_TEXT_CHARS)]
    often, once = analyze("used often", "english"), analyze("used once", "english")
    for text in texts:
        analyze(text, "english")
        assert analyze("used often", "english") is often

    assert analyze("used once", "english") is not once
    assert analyze(texts[-1], "english") is analyze(texts[-1], "english")


def test_a_text_that_is_too_large_is_not_kept() -> None:
    """It would take the place of all others."""
    text, small = "x" * CACHED_CHARS, analyze("used before", "english")

    assert analyze(text, "english") is not analyze(text, "english")
    assert analyze("used before", "english") is small


def test_what_ranking_needs_of_a_text() -> None:
    """An analysis has the tokens, the question mark and the speaker of the whole text."""
    text = f"Ann B.: {'boat ' * MAX_TEXT_CHARS}? "
    found = analyze(text, "english")

    assert (found.tokens, found.asks) == (len(text) / 4 + 3, True)
    assert found.speaker == frozenset({"ann", "b"})
    assert analyze("no one", "english").speaker is None
