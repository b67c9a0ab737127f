import pytest

from formatters.extractive import stem_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Decisions, decided!", ["the", "decisi", "decide"]),
        ("Don't pay €12.50", ["don't", "pay", "12", "50"]),
        ("ＡＢＣ naïve", ["abc", "naïve"]),
        ("東京タワーへ", ["東京", "京タ", "タワ", "ワー", "ーへ"]),
        ("雨 and 2人", ["雨", "and", "2", "人"]),
        ("서울에서 만나", ["서울에서", "만나"]),
        ("… !", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    """Words are stems in lower case; scripts without blanks give pairs of characters."""
    assert stem_words(text) == expected
