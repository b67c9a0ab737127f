"""Texts become the numbers that BERT's own tokenizer gives them."""

import pytest

from service.adapters.embedders.wordpieces import WordPieces


@pytest.fixture(scope="module")
def pieces() -> WordPieces:
    """Read the vocabulary once."""
    return WordPieces()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [101, 102]),
        ("Hello, world!", [101, 7592, 1010, 2088, 999, 102]),
        # accents and case don't count, symbols are words
        ("Résumé: $5", [101, 13746, 1024, 1002, 1019, 102]),
        # pieces of a word, and a word without any
        ("unaffable", [101, 14477, 20961, 3468, 102]),
        ("a\u1234b c", [101, 100, 1039, 102]),
        ("x" * 101, [101, 100, 102]),
        # each Chinese character alone; what can't be seen is nothing
        ("中国 o\u200bk\x00", [101, 1746, 1799, 7929, 102]),
        # no mark of the model can be forged
        ("[SEP]", [101, 1031, 19802, 1033, 102]),
    ],
)
def test_a_text_becomes_numbers(pieces: WordPieces, text: str, expected: list[int]) -> None:
    """As the tokenizers of Hugging Face count them, but for marks in a text."""
    assert pieces.encode(text, 256) == expected


def test_a_long_text_is_cut(pieces: WordPieces) -> None:
    """Its end is marked all the same."""
    assert pieces.encode("hello " * 100, 5) == [101, 7592, 7592, 7592, 102]


def test_another_vocabulary_can_be_used() -> None:
    """Numbers are places in it."""
    own = WordPieces(iter(["[CLS]", "[SEP]", "[UNK]", "a", "##b"]))

    assert own.encode("ab ba", 10) == [0, 3, 4, 2, 1]
