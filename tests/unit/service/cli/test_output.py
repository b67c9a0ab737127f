"""What all commands print with."""

import pytest

from service.cli.output import counted, printable


def test_nothing_steers_the_terminal() -> None:
    """Escape sequences in people's words are shown as replacement characters."""
    assert printable("a\x1b[2Jb\x9bc\r\n\tä") == "a�[2Jb�c�\n\tä"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (1000, "1,000 entries")],
)
def test_only_one_is_singular(number: int, text: str) -> None:
    """Numbers have groups of digits."""
    assert counted(number, "entry") == text
    assert counted(number, "row") == text.replace("entry", "row").replace("entries", "rows")
