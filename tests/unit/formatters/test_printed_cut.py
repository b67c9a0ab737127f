import pytest

from formatters.printed import truncate


@pytest.mark.parametrize(
    ("chars", "text"),
    [
        (None, "a longer text"),
        (13, "a longer text"),
        (12, "a longer ..."),
        (4, "a..."),
        (3, "..."),
        (1, "."),
        (0, ""),
    ],
)
def test_cut(chars: int | None, text: str) -> None:
    """A text has at most so many characters, of which the mark is part."""
    assert truncate("a longer text", chars) == text
